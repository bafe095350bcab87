#include "ulp/prune/structured/fold_constants.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <optional>

#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/removed.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool in_table(std::span<const Rule> table, const Node& node) {
  return std::ranges::any_of(table, [&](const Rule& rule) { return rule.op == node.op(); });
}

bool is_conv(const Node& node) {
  return node.is("aten::conv1d") || node.is("aten::conv2d") || node.is("aten::conv3d");
}

bool all_are(const Argument& arg, int64_t wanted) {
  const auto list = graph::integers(arg);
  return list && std::ranges::all_of(*list, [&](int64_t i) { return i == wanted; });
}

/// Follows the numbers that removed channels hold: one for each position of a value's channels, in double.
class Constants {
 public:
  Constants(graph::GraphModule& module, const Groups& groups, const Removals& removals)
      : module_(module),
        tracker_(module.graph(), groups.options),
        left_(survivors(tracker_, groups, removals)) {}

  FoldReport run() {
    std::vector<Node*> nodes;
    for (const auto& node : module_.graph().nodes()) nodes.push_back(node.get());
    for (Node* node : nodes) {
      if (node->kind() == Node::Kind::call && !node->train_only) visit(*node);
    }
    module_.recompile();
    return std::move(report_);
  }

 private:
  /// The dimension of a value that loses positions; nothing where none does, or more than one.
  std::optional<size_t> cut_dim(const Value* value) const {
    std::optional<size_t> found;
    const Layout& layout = tracker_.layout(value);
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      if (left_.whole(layout.dims[d])) continue;
      if (found) return std::nullopt;
      found = d;
    }
    return found;
  }
  const Axis& axis_of(const Value* value) const { return tracker_.layout(value).dims[*cut_dim(value)]; }
  std::vector<int64_t> removed_of(const Axis& axis) const {
    std::vector<int64_t> removed;
    for (size_t i = 0; i < axis.size(); ++i) {
      if (!left_.keeps(axis[i])) removed.push_back(static_cast<int64_t>(i));
    }
    return removed;
  }
  const at::Tensor* known(const Argument& arg) const {
    const auto found = arg.is_value() ? numbers_.find(arg.value) : numbers_.end();
    return found == numbers_.end() ? nullptr : &found->second;
  }

  void visit(Node& node) {
    if (node.outputs().empty()) return;
    read(node);
    if (!cut_dim(node.output())) return;
    const at::Tensor made = numbers(node);
    if (made.defined()) numbers_[node.output()] = made;
  }

  at::Tensor zeros(const Value* value) const {
    return torch::zeros({static_cast<int64_t>(axis_of(value).size())}, torch::kDouble);
  }

  /// The numbers of the node's channels, or nothing where they are not the same everywhere.
  at::Tensor numbers(const Node& node) {
    const Value* out = node.output();
    if (is_conv(node) || node.is("aten::linear") || node.is("aten::addmm") ||
        node.op().starts_with("aten::conv_transpose"))
      return zeros(out);
    if (node.is("aten::batch_norm")) return batch_norm(node);
    if (node.is("aten::cat") || (node.is("aten::add") && node.args.at(1).is_value())) return joined(node);
    const at::Tensor* x = node.args.empty() ? nullptr : known(node.args[0]);
    if (!x) return {};
    if (in_table(elementwise_rules(), node) && node.reads().size() == 1) return elementwise(node, *x);
    if (is_pooling(node) || node.is("aten::mean")) return same_axis(node) ? *x : at::Tensor();
    if (node.is("aten::flatten") || node.is("aten::view") || node.is("aten::reshape"))
      return repeated(node, *x);
    return {};
  }

  bool is_pooling(const Node& node) const {
    if (node.op().starts_with("aten::adaptive_") || node.op().starts_with("aten::max_pool")) return true;
    return node.op().starts_with("aten::avg_pool") && all_are(node.arg("padding"), 0);
  }
  bool same_axis(const Node& node) const {
    return axis_of(node.output()) == tracker_.layout(node.args[0].value).dims[*cut_dim(node.args[0].value)];
  }

  at::Tensor batch_norm(const Node& node) const {
    const at::Tensor* x = known(node.args[0]);
    at::Tensor mean = stored(node.arg("running_mean")), var = stored(node.arg("running_var"));
    if (!x || !mean.defined() || !var.defined()) return {};
    const at::Tensor gamma = stored(node.arg("weight")), beta = stored(node.arg("bias"));
    at::Tensor y = (*x - mean) / (var + node.arg("eps").literal.toDouble()).sqrt();
    if (gamma.defined()) y = y * gamma;
    return beta.defined() ? y + beta : y;
  }
  at::Tensor stored(const Argument& arg) const {
    if (!arg.is_value()) return {};
    const at::Tensor tensor = module_.graph().attribute_tensor(arg.value);
    return tensor.defined() ? tensor.detach().to(torch::kDouble) : tensor;
  }

  /// Sums of channels of one axis, and joins along it.
  at::Tensor joined(const Node& node) const {
    const bool cat = node.is("aten::cat");
    std::vector<at::Tensor> parts;
    for (const Argument& arg : cat ? node.args[0].items : std::vector<Argument>{node.args[0], node.args[1]}) {
      if (!arg.is_value()) return {};
      const at::Tensor* part = known(arg);
      const Layout& layout = tracker_.layout(arg.value);
      const size_t dim = *cut_dim(node.output());
      const bool whole = cat && dim < layout.dims.size() && left_.whole(layout.dims[dim]);
      if (!part && !whole) return {};
      parts.push_back(part ? *part
                           : torch::zeros({static_cast<int64_t>(layout.dims[dim].size())}, torch::kDouble));
    }
    if (cat) {
      const at::Tensor result = torch::cat(parts);
      return result.numel() == zeros(node.output()).numel() ? result : at::Tensor();
    }
    if (graph::number(node.arg("alpha")) != 1.0 || parts[0].sizes() != parts[1].sizes()) return {};
    return parts[0] + parts[1];
  }

  /// The op itself, on the numbers.
  at::Tensor elementwise(const Node& node, const at::Tensor& x) const {
    const auto graph = std::make_shared<Graph>();
    std::vector<Argument> args = node.args;
    args[0] = graph->add_input("x", -1);
    graph->set_output(graph->call(node.target(), std::move(args))->output());
    graph::GraphModule alone(graph);
    alone.eval();
    const at::Tensor result = alone.forward(x);
    return result.sizes() == x.sizes() ? result.to(torch::kDouble) : at::Tensor();
  }

  /// Every channel has so many places after each other.
  at::Tensor repeated(const Node& node, const at::Tensor& x) const {
    const Axis& from = tracker_.layout(node.args[0].value).dims[*cut_dim(node.args[0].value)];
    const Axis& to = axis_of(node.output());
    if (to.size() % from.size() != 0) return {};
    const size_t each = to.size() / from.size();
    for (size_t i = 0; i < to.size(); ++i) {
      if (!left_.keeps(to[i]) && tracker_.axes().find(to[i]) != tracker_.axes().find(from[i / each]))
        return {};
    }
    return x.repeat_interleave(static_cast<int64_t>(each));
  }

  /// A layer that sums over channels of which some are removed.
  void read(Node& node) {
    const bool conv = is_conv(node), addmm = node.is("aten::addmm");
    const bool layer = conv || addmm || node.is("aten::linear") || node.is("aten::matmul") ||
                       node.op().starts_with("aten::conv_transpose");
    if (!layer) return;
    const Argument& x = node.arg(addmm ? "mat1" : node.is("aten::matmul") ? "self" : "input");
    const std::optional<size_t> dim = cut_dim(x.value);
    if (!dim || *dim != (conv ? 1 : tracker_.layout(x.value).dims.size() - 1)) return;
    const std::vector<int64_t> removed = removed_of(axis_of(x.value));
    const std::string line = graph::label(node) + ": " + std::to_string(removed.size()) + " channels";
    const auto leave = [&](const char* why) { report_.not_folded.push_back(line + ": " + why); };
    const at::Tensor* constants = known(x);
    if (!constants) return leave("what they hold is not one number each");
    const at::Tensor index = torch::tensor(removed, torch::kLong),
                     numbers = constants->index_select(0, index);
    if (numbers.count_nonzero().item<int64_t>() == 0) return;
    if (conv && graph::integer(node.arg("groups")) != 1) return;  // depthwise: the channels go with it
    if (conv && !all_are(node.arg("padding"), 0)) return leave("its zero padding knows no constant");
    at::Tensor weight = weight_of(node, conv, addmm);
    if (!weight.defined()) return leave("its weight is computed");
    if (weight.dim() > 2) weight = weight.flatten(2).sum(2);
    const at::Tensor more = torch::mv(weight.index_select(1, index), numbers);
    // A layer that is called twice has one bias: it serves both where both read the same numbers.
    const auto [at, fresh] = added_.emplace(node.arg(conv || !addmm ? "weight" : "self").value, more);
    if (!fresh && !torch::allclose(at->second, more)) return leave("it is called with other channels, too");
    if (fresh) add_bias(node, addmm ? "self" : "bias", more, weight.size(0));
    if (!fresh && !addmm && !node.arg("bias").is_value())
      node.arg("bias") = Argument(made_.at(node.arg("weight").value));
    report_.folded.push_back(line);
  }

  /// Outputs x inputs; undefined where it is not stored.
  at::Tensor weight_of(const Node& node, bool conv, bool addmm) const {
    if (conv || node.is("aten::linear")) return stored(node.arg("weight"));
    if (!addmm || !node.arg("mat2").is_value()) return {};
    const Node& transposed = *node.arg("mat2").value->producer;
    if (!transposed.is("aten::t")) return {};
    const bool plain = graph::number(node.arg("beta")) == 1.0 && graph::number(node.arg("alpha")) == 1.0;
    return plain ? stored(transposed.args[0]) : at::Tensor();
  }

  void add_bias(Node& node, const char* name, const at::Tensor& what, int64_t outputs) {
    Graph& graph = module_.graph();
    const at::Tensor bias =
        node.arg(name).is_value() ? graph.attribute_tensor(node.arg(name).value) : at::Tensor();
    if (bias.defined()) {
      bias.detach().add_(what.to(bias.scalar_type()).view_as(bias));
      return;
    }
    const graph::Attribute& weight = *graph.find_attribute(node.arg("weight").value->producer->target());
    const std::string& owner = node.arg("weight").value->producer->target();
    const std::string made = owner.substr(0, owner.rfind('.') + 1) + "bias";
    const bool trained = weight.tensor.requires_grad();
    graph.set_attribute(
        made, {weight.kind, what.to(weight.tensor.options()).view({outputs}).set_requires_grad(trained)});
    node.arg(name) = Argument(graph.attribute(made));
    made_[node.arg("weight").value] = node.arg(name).value;
  }

  graph::GraphModule& module_;
  Tracker tracker_;
  Survivors left_;
  std::map<const Value*, at::Tensor> numbers_;
  std::map<const Value*, at::Tensor> added_;  ///< by the weight, or the bias of addmm: what its bias got
  std::map<const Value*, Value*> made_;       ///< by the weight: the bias that it did not have
  FoldReport report_;
};

}  // namespace

FoldReport fold_constants(graph::GraphModule& module, const Groups& groups, const Removals& removals) {
  const torch::NoGradGuard no_grad;
  return Constants(module, groups, removals).run();
}

}  // namespace ulp::prune
