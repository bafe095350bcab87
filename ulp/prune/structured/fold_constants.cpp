#include "ulp/prune/structured/fold_constants.h"

#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/removed.h"
#include "ulp/prune/structured/removed_channels.h"

namespace ulp::prune {

using graph::Argument;
using graph::Graph;
using graph::Node;

namespace {

bool takes_constants(const Node& node) {
  return is_conv(node) || node.is("aten::linear") || node.is("aten::addmm");
}

bool is_padded(const Node& conv) {
  const Argument& padding = conv.arg("padding");
  if (padding.literal.isString()) return padding.literal.toStringRef() != "valid";
  const auto list = graph::integers(padding);
  return !list || std::ranges::any_of(*list, [](int64_t i) { return i != 0; });
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.const_data_ptr() : nullptr;
}

/// A call of a layer that has a bias or can have one, and what its bias must get.
struct BiasCorrection {
  Node* node = nullptr;
  std::string line = {};  ///< "conv2: 3 channels"; empty where nothing is lost
  /// By output, 0 for those that are removed; a single 0 where nothing is lost. Undefined where there is a problem.
  at::Tensor more = {};
  std::string problem = {};
  /// The memory of the bias, the value that a computed one is, or the value of the weight where there is none.
  const void* owner = nullptr;

  const char* bias_name() const { return node->is("aten::addmm") ? "self" : "bias"; }
  const Argument& bias() const { return node->arg(bias_name()); }
  bool adds() const { return !more.defined() || more.count_nonzero().item<int64_t>() > 0; }
};

class ConstantFolder {
 public:
  ConstantFolder(graph::GraphModule& module, const Groups& groups, const Removals& removals)
      : module_(module),
        graph_(module.graph()),
        tracker_(graph_, groups.options),
        left_(survivors(tracker_, groups, removals)),
        removed_(graph_, tracker_, left_) {}

  FoldReport run() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::call && !node->train_only && !node->outputs().empty()) read(*node);
    }
    decide();
    for (const BiasCorrection& reading : readings_) {
      if (reading.line.empty()) continue;
      if (reading.problem.empty()) {
        report_.folded.push_back(reading.line);
      } else {
        report_.not_folded.push_back(reading.line + ": " + reading.problem);
      }
    }
    module_.recompile();
    return std::move(report_);
  }

 private:
  void read(Node& node) {
    const std::vector<LostChannels> lost = lost_channels(node, removed_);
    BiasCorrection reading{.node = &node};
    if (!lost.empty())
      reading.line = graph::label(node) + ": " + std::to_string(lost[0].indices.size()) + " channels";
    if (takes_constants(node)) {
      reading.owner = owner_of(reading);
      if (!lost.empty()) reading.problem = problem_of(reading, lost[0]);
      if (lost.empty()) reading.more = torch::zeros({1}, torch::kDouble);
      if (!lost.empty() && reading.problem.empty()) reading.more = sums_of(node, lost[0]);
    } else if (!lost.empty()) {
      reading.problem = std::string(node.op()) + " takes no constants";
    }
    readings_.push_back(std::move(reading));
  }

  size_t output_dim(const Node& node) const { return is_conv(node) ? 1 : removed_.rank(node.output()) - 1; }
  int64_t outputs(const Node& node) const {
    return static_cast<int64_t>(removed_.axis(node.output(), output_dim(node)).size());
  }

  /// Why the constants are not known or have no place; empty where they are and have.
  std::string problem_of(const BiasCorrection& reading, const LostChannels& lost) const {
    const Node& node = *reading.node;
    if (!removed_.along(lost.value, lost.dim).defined()) return "what they hold is not one number each";
    if (is_conv(node) && is_padded(node)) return "its zero padding knows no constant";
    if (!weight_of(node).defined()) return "its weight is computed";
    if (reading.bias().is_none()) return "";
    const at::Tensor bias =
        reading.bias().is_value() ? graph_.attribute_tensor(reading.bias().value) : at::Tensor();
    if (!bias.defined()) return "its bias is computed";
    const bool fits = bias.numel() == outputs(node) && bias.size(-1) == outputs(node);
    return fits ? "" : "its bias is not one number for each output";
  }

  /// What the lost channels add to each output that stays.
  at::Tensor sums_of(const Node& node, const LostChannels& lost) const {
    const at::Tensor weight = weight_of(node), numbers = removed_.along(lost.value, lost.dim);
    const int64_t each = weight.size(1), groups = numbers.numel() / each, rows = outputs(node) / groups;
    at::Tensor sums =
        (weight.reshape({groups, rows, each}) * numbers.view({groups, 1, each})).sum(2).flatten();
    const Axis& axis = removed_.axis(node.output(), output_dim(node));
    for (size_t i = 0; i < axis.size(); ++i) {
      if (!removed_.keeps(axis[i])) sums[static_cast<int64_t>(i)] = 0.0;
    }
    return sums;
  }

  /// Outputs x inputs of a group, summed over the places of a kernel; undefined where it is not stored.
  at::Tensor weight_of(const Node& node) const {
    const Argument& arg = node.arg(node.is("aten::addmm") ? "mat2" : "weight");
    if (!arg.is_value()) return {};
    const auto stored = [&](const Argument& of) {
      const at::Tensor tensor = of.is_value() ? graph_.attribute_tensor(of.value) : at::Tensor();
      return tensor.defined() ? tensor.detach().to(torch::kCPU, torch::kDouble) : tensor;
    };
    if (node.is("aten::addmm")) {
      if (graph::number(node.arg("beta")) != 1.0 || graph::number(node.arg("alpha")) != 1.0) return {};
      const Node* turned = graph::producer(arg, "aten::t");
      const at::Tensor weight = stored(turned ? turned->args[0] : arg);
      return turned || !weight.defined() ? weight : weight.t();
    }
    const at::Tensor weight = stored(arg);
    return weight.defined() && weight.dim() > 2 ? weight.flatten(2).sum(2) : weight;
  }

  /// Calls that read one bias, or one weight without a bias, get it together or not at all.
  void decide() {
    std::set<const void*> seen{nullptr};
    for (const BiasCorrection& reading : readings_) {
      if (!seen.insert(reading.owner).second) continue;
      std::vector<BiasCorrection*> calls;
      for (BiasCorrection& other : readings_) {
        if (other.owner == reading.owner) calls.push_back(&other);
      }
      if (std::ranges::none_of(calls, [](const BiasCorrection* call) { return call->adds(); })) continue;
      const bool equal = std::ranges::all_of(calls, [&](const BiasCorrection* call) {
        return call->more.defined() && call->more.sizes() == reading.more.sizes() &&
               torch::allclose(call->more, reading.more, 1e-12, 1e-12);
      });
      const bool elsewhere = reads_of_bias(reading) > calls.size();
      if (equal && !elsewhere) {
        add_bias(calls);
        continue;
      }
      for (BiasCorrection* call : calls) {
        if (!call->problem.empty()) continue;
        call->problem = elsewhere ? "its bias is read elsewhere, too"
                                  : "its bias is for calls that read other constants, too";
      }
    }
  }

  const void* owner_of(const BiasCorrection& reading) const {
    if (!reading.bias().is_value()) return reading.node->arg("weight").value;
    const at::Tensor stored = graph_.attribute_tensor(reading.bias().value);
    return stored.defined() ? memory_of(stored) : static_cast<const void*>(reading.bias().value);
  }
  /// How often any call reads the memory of the bias.
  size_t reads_of_bias(const BiasCorrection& reading) const {
    size_t found = 0;
    for (const auto& node : graph_.nodes()) {
      for (const graph::Value* value : node->reads()) {
        const at::Tensor stored = graph_.attribute_tensor(value);
        found += stored.defined() && memory_of(stored) == reading.owner;
      }
    }
    return found;
  }

  void add_bias(const std::vector<BiasCorrection*>& calls) {
    const BiasCorrection& first = *calls[0];
    if (first.bias().is_value()) {
      const at::Tensor bias = graph_.attribute_tensor(first.bias().value).detach();
      bias.add_(first.more.to(bias.options()).view_as(bias));
      return;
    }
    const std::string& owner = first.node->arg("weight").value->producer->target();
    const graph::Attribute& weight = *graph_.find_attribute(owner);
    const at::Tensor made = first.more.to(weight.tensor.options());
    const std::string name = free_name(owner);
    graph_.set_attribute(name, {weight.kind, made.set_requires_grad(weight.tensor.requires_grad())});
    for (const BiasCorrection* call : calls) call->node->arg("bias") = Argument(graph_.attribute(name));
  }

  /// "conv.bias" for "conv.weight", "conv.w1_bias" for "conv.w1".
  std::string free_name(const std::string& weight) const {
    const size_t dot = weight.rfind('.') + 1;  // 0 where there is none
    const std::string last = weight.substr(dot);
    const std::string wish = weight.substr(0, dot) + (last == "weight" ? "bias" : last + "_bias");
    const auto taken = [&](const std::string& name) {
      const auto is_below = [&](const std::string& other) {
        return other == name || other.starts_with(name + ".");
      };
      return std::ranges::any_of(graph_.attributes(),
                                 [&](const auto& item) { return is_below(item.first); }) ||
             std::ranges::any_of(graph_.modules(), [&](const auto& item) { return is_below(item.first); });
    };
    std::string name = wish;
    for (int i = 2; taken(name); ++i) name = wish + "_" + std::to_string(i);
    return name;
  }

  graph::GraphModule& module_;
  Graph& graph_;
  Tracker tracker_;
  Survivors left_;
  RemovedConstants removed_;
  std::vector<BiasCorrection> readings_;  ///< in the order of the graph
  FoldReport report_;
};

}  // namespace

FoldReport fold_constants(graph::GraphModule& module, const Groups& groups, const Removals& removals) {
  const torch::NoGradGuard no_grad;
  return ConstantFolder(module, groups, removals).run();
}

}  // namespace ulp::prune
