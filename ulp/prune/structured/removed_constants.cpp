#include "ulp/prune/structured/removed_constants.h"

#include <ATen/core/function_schema.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <set>

#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::prune {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool all_are(const Argument& arg, int64_t wanted) {
  const auto list = graph::integers(arg);
  return list && std::ranges::all_of(*list, [&](int64_t i) { return i == wanted; });
}

const Argument* find_argument(const Node& node, std::string_view name) {
  const auto& known = node.schema().arguments();
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].name() == name) return &node.args[i];
  }
  return nullptr;
}

/// The op gives the same numbers for the same numbers, whatever is beside them: a vector is enough to know
/// them.
bool is_function_of_numbers(const Node& node) {
  for (const char* random : {"aten::bernoulli", "aten::rand_like", "aten::randn_like", "aten::empty_like"}) {
    if (node.is(random)) return false;
  }
  for (const char* flag : {"train", "training"}) {
    const Argument* arg = find_argument(node, flag);
    if (arg && set_in_eval(*arg)) return false;
  }
  return find_argument(node, "dim") == nullptr;
}

/// Windows that give back the number that all of them hold.
bool keeps_constants(const Node& node) {
  if (node.is("aten::mean") || node.op().starts_with("aten::adaptive_")) return true;
  if (node.op().starts_with("aten::max_pool")) return true;
  if (!node.op().starts_with("aten::avg_pool") || !all_are(node.arg("padding"), 0)) return false;
  const Argument* divisor = find_argument(node, "divisor_override");
  return divisor == nullptr || divisor->is_none();
}

}  // namespace

bool in_family(std::span<const Rule> family, const Node& node) {
  return std::ranges::any_of(family, [&](const Rule& rule) { return rule.op == node.op(); });
}

bool is_transposed_conv(const Node& node) {
  if (node.is("aten::convolution") || node.is("aten::_convolution"))
    return set_in_eval(node.arg("transposed"));
  return node.op().starts_with("aten::conv_transpose");
}

bool is_conv(const Node& node) {
  for (const char* op :
       {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::_convolution"}) {
    if (node.is(op)) return !is_transposed_conv(node);
  }
  return false;
}

bool set_in_eval(const Argument& flag) {
  if (flag.kind == Argument::Kind::training) return flag.inverted;
  return !flag.literal.isBool() || flag.literal.toBool();
}

RemovedConstants::RemovedConstants(const Graph& graph, const Tracker& tracker, const Survivors& left)
    : graph_(graph), tracker_(tracker), left_(left) {
  for (const auto& node : graph.nodes()) {
    if (node->train_only) continue;
    for (const auto& value : node->outputs()) {
      for (size_t d = 0; d < rank(value.get()); ++d) {
        if (cut(value.get(), d)) keep(value.get(), d, computed(*node, value.get(), d));
      }
    }
  }
}

void RemovedConstants::keep(const Value* value, size_t dim, const at::Tensor& numbers) {
  const Axis& positions = axis(value, dim);
  if (!numbers.defined() || numbers.numel() != static_cast<int64_t>(positions.size())) return;
  std::vector<double> stays;
  for (const Position position : positions) stays.push_back(keeps(position));
  const at::Tensor kept = numbers.masked_fill(torch::tensor(stays).to(torch::kBool), 0.0);
  if (kept.isfinite().all().item<bool>()) numbers_[{value, dim}] = kept;
}

at::Tensor RemovedConstants::zeros(const Value* value, size_t dim) const {
  return torch::zeros({static_cast<int64_t>(axis(value, dim).size())}, torch::kDouble);
}

at::Tensor RemovedConstants::along(const Value* value, size_t dim) const {
  if (!cut(value, dim)) return zeros(value, dim);
  const auto found = numbers_.find({value, dim});
  return found == numbers_.end() ? at::Tensor() : found->second;
}

bool RemovedConstants::zero(const Argument& arg, size_t dim) const {
  if (!arg.is_value() || dim >= rank(arg.value) || !cut(arg.value, dim)) return false;
  const at::Tensor numbers = along(arg.value, dim);
  return numbers.defined() && numbers.count_nonzero().item<int64_t>() == 0;
}

at::Tensor RemovedConstants::from_end(const Argument& arg, size_t distance, size_t size) const {
  if (!arg.is_value() || rank(arg.value) < distance) return {};
  const size_t dim = rank(arg.value) - distance;
  return axis(arg.value, dim).size() == size ? along(arg.value, dim) : at::Tensor();
}

bool RemovedConstants::zero_from_end(const Argument& arg, size_t distance, size_t size) const {
  return from_end(arg, distance, size).defined() && zero(arg, rank(arg.value) - distance);
}

at::Tensor RemovedConstants::computed(const Node& node, const Value* out, size_t dim) const {
  if (node.kind() == Node::Kind::attribute) return attribute(node, dim);
  if (node.kind() != Node::Kind::call) return {};
  if (in_family(layer_rules(), node)) return layer(node, out, dim);
  if (in_family(sequence_rules(), node)) return sequence(node, out, dim);
  if (in_family(elementwise_rules(), node)) return elementwise(node, out, dim);
  if (in_family(reduce_rules(), node)) return reduced(node, out, dim);
  if (in_family(view_rules(), node)) return viewed(node, out, dim);
  if (node.is("aten::batch_norm")) return dim == 1 ? batch_norm(node) : at::Tensor();
  if (node.is("aten::zeros")) return zeros(out, dim);
  if (node.is("aten::cat")) return joined(node, dim);
  const bool moves = in_family(piece_rules(), node) || in_family(move_rules(), node);
  return moves ? moved(node, out, dim) : at::Tensor();
}

at::Tensor RemovedConstants::batch_norm(const Node& node) const {
  const at::Tensor x = along(node.args[0].value, 1);
  if (!x.defined() || set_in_eval(node.arg("training"))) return {};
  const auto each = [&](const char* name, double otherwise) {
    const Argument& arg = node.arg(name);
    return arg.is_value() ? along(arg.value, 0) : torch::full_like(x, otherwise);
  };
  const at::Tensor mean = each("running_mean", 0), var = each("running_var", 1), gamma = each("weight", 1),
                   beta = each("bias", 0);
  if (!mean.defined() || !var.defined() || !gamma.defined() || !beta.defined()) return {};
  return (x - mean) / (var + node.arg("eps").literal.toDouble()).sqrt() * gamma + beta;
}

/// Along the dimension of the join one after the other; along another one all pieces must hold the same.
at::Tensor RemovedConstants::joined(const Node& node, size_t dim) const {
  const std::optional<int64_t> named = graph::integer(node.arg("dim"));
  std::vector<at::Tensor> parts;
  for (const Argument& piece : node.args[0].items) {
    if (!piece.is_value() || dim >= rank(piece.value)) return {};
    parts.push_back(along(piece.value, dim));
    if (!parts.back().defined()) return {};
  }
  if (!named || parts.empty()) return {};
  const Layout& layout = tracker_.layout(node.output());
  if (layout.dim(*named) == dim) return torch::cat(parts);
  const bool same =
      std::ranges::all_of(parts, [&](const at::Tensor& part) { return torch::equal(part, parts[0]); });
  return same ? parts[0] : at::Tensor();
}

/// What an operand holds, with its dimensions.
at::Tensor RemovedConstants::operand(const Argument& arg, size_t distance, size_t size) const {
  const at::Tensor stored = graph_.attribute_tensor(arg.value);
  const bool floating = stored.defined() ? stored.is_floating_point()
                                         : arg.value->meta && at::isFloatingType(arg.value->meta->dtype);
  if (!floating) return {};
  if (stored.defined() && stored.numel() == 1) return stored.detach().to(torch::kCPU, torch::kDouble);
  const at::Tensor numbers = from_end(arg, distance, size);
  if (!numbers.defined()) return {};
  std::vector<int64_t> sizes(rank(arg.value), 1);
  sizes[sizes.size() - distance] = static_cast<int64_t>(size);
  return numbers.view(sizes);
}

/// The op itself, on the numbers.
at::Tensor RemovedConstants::elementwise(const Node& node, const Value* out, size_t dim) const {
  if (node.is("ulp::by_mode")) return node.args[0].is_value() ? along(node.args[0].value, dim) : at::Tensor();
  const size_t distance = rank(out) - dim, size = axis(out, dim).size();
  const auto is_zero = [&](const Argument& arg) { return zero_from_end(arg, distance, size); };
  if (node.is("aten::mul") && std::ranges::any_of(node.args, is_zero)) return zeros(out, dim);
  if (!is_function_of_numbers(node)) return {};
  const auto alone = std::make_shared<Graph>();
  std::vector<Argument> args = node.args;
  std::vector<at::Tensor> inputs;
  for (Argument& arg : args) {
    const bool plain = arg.kind == Argument::Kind::literal || arg.kind == Argument::Kind::training;
    if (plain) continue;
    if (!arg.is_value()) return {};
    inputs.push_back(operand(arg, distance, size));
    if (!inputs.back().defined()) return {};
    arg = alone->add_input("x" + std::to_string(inputs.size()), -1);
  }
  alone->set_output(alone->call(node.target(), std::move(args))->output());
  graph::GraphModule module(alone);
  module.eval();
  return module.forward(inputs).detach().flatten().to(torch::kCPU, torch::kDouble);
}

/// Pooling and means over other dimensions; of zeros every sum is zero.
at::Tensor RemovedConstants::reduced(const Node& node, const Value* out, size_t dim) const {
  if (out->index != 0) return {};  // the others are indices
  const at::Tensor same = moved(node, out, dim);
  if (!same.defined() || keeps_constants(node)) return same;
  return tracker_.layout(out).zero[dim] && same.count_nonzero().item<int64_t>() == 0 ? same : at::Tensor();
}

/// Numbers that go where their positions go.
at::Tensor RemovedConstants::moved(const Node& node, const Value* out, size_t dim) const {
  if (node.args.empty() || !node.args[0].is_value()) return {};
  const Value* x = node.args[0].value;
  const Axis& to = axis(out, dim);
  std::optional<size_t> from;
  for (size_t d = 0; d < rank(x); ++d) {
    const std::set<Position> there(axis(x, d).begin(), axis(x, d).end());
    if (!std::ranges::all_of(to, [&](Position p) { return keeps(p) || there.contains(p); })) continue;
    if (from) return {};  // two of its dimensions have these channels
    from = d;
  }
  const at::Tensor numbers = from ? along(x, *from) : at::Tensor();
  if (!numbers.defined() || (axis(x, *from) == to && !node.is("aten::flip"))) return numbers;
  // A join of a value with itself has a position twice, perhaps with two numbers.
  std::map<Position, double> held;
  for (size_t i = 0; i < axis(x, *from).size(); ++i) {
    const double number = numbers[static_cast<int64_t>(i)].item<double>();
    if (held.emplace(axis(x, *from)[i], number).first->second != number) return {};
  }
  std::vector<double> result;
  for (const Position position : to) result.push_back(keeps(position) ? 0.0 : held.at(position));
  return torch::tensor(result, torch::kDouble);
}

at::Tensor RemovedConstants::viewed(const Node& node, const Value* out, size_t dim) const {
  const Value* x = node.args[0].value;
  size_t dims = 0, zero_dims = 0;
  for (size_t d = 0; d < rank(x); ++d) {
    dims += cut(x, d);
    zero_dims += zero(node.args[0], d);
  }
  // What is removed behind a view is what was removed before it.
  if (dims > 0 && dims == zero_dims) return zeros(out, dim);
  const at::Tensor same = moved(node, out, dim);
  const bool merges = node.is("aten::flatten") || node.is("aten::view") || node.is("aten::reshape");
  return same.defined() || !merges ? same : repeated(node, out, dim);
}

/// Every channel has so many places after each other.
at::Tensor RemovedConstants::repeated(const Node& node, const Value* out, size_t dim) const {
  const Value* x = node.args[0].value;
  const Axis& to = axis(out, dim);
  for (size_t d = 0; d < rank(x); ++d) {
    const Axis& from = axis(x, d);
    if (!cut(x, d) || to.size() % from.size() != 0) continue;
    const size_t each = to.size() / from.size();
    bool fits = true;
    for (size_t i = 0; i < to.size(); ++i)
      fits = fits && (keeps(to[i]) || tracker_.axes().find(to[i]) == tracker_.axes().find(from[i / each]));
    const at::Tensor numbers = fits ? along(x, d) : at::Tensor();
    if (numbers.defined()) return numbers.repeat_interleave(static_cast<int64_t>(each));
  }
  return {};
}

}  // namespace ulp::prune
