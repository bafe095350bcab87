// Layers that make zeros of removed channels, because the rows of their weights are zeros.
#include <torch/types.h>

#include <algorithm>

#include "ulp/prune/structured/removed_constants.h"

namespace ulp::prune {

using graph::Argument;
using graph::Node;
using graph::Value;

namespace {

std::vector<Argument> listed(const Argument& arg) {
  return arg.is_value() ? std::vector<Argument>{arg} : arg.items;
}

}  // namespace

/// Rows are zeroed; a vector of something else holds what it holds.
at::Tensor RemovedConstants::attribute(const Node& node, size_t dim) const {
  const graph::Attribute& stored = *graph_.find_attribute(node.target());
  const Role otherwise = stored.kind == graph::Attribute::Kind::parameter ? Role::row : Role::constant;
  const bool rows = std::ranges::all_of(axis(node.output(), dim), [&](Position position) {
    const Role* said = tracker_.role(position);
    return keeps(position) || (said ? *said : otherwise) == Role::row;
  });
  if (rows) return zeros(node.output(), dim);
  if (stored.tensor.numel() != static_cast<int64_t>(axis(node.output(), dim).size())) return {};
  return stored.tensor.detach().flatten().to(torch::kCPU, torch::kDouble);
}

/// The bias, or zeros, where the rows are zeros.
at::Tensor RemovedConstants::layer(const Node& node, const Value* out, size_t dim) const {
  const bool transposed = is_transposed_conv(node), linear = node.is("aten::linear");
  if (!transposed && !linear && !is_conv(node)) return product(node, out, dim);
  if (dim != (linear ? rank(out) - 1 : 1)) return {};
  const Argument& weight = node.arg("weight");
  // Channels that go with their groups are what the group's input makes of its weights.
  const bool with_group = transposed && !cut(weight.value, 1);
  if (!(with_group ? zero(node.arg("input"), 1) : zero(weight, transposed ? 1 : 0))) return {};
  const Argument& bias = node.arg("bias");
  return bias.is_value() ? from_end(bias, 1, axis(out, dim).size()) : zeros(out, dim);
}

/// Products of matrices and looked-up rows: zeros where an operand's are.
at::Tensor RemovedConstants::product(const Node& node, const Value* out, size_t dim) const {
  const size_t distance = rank(out) - dim, size = axis(out, dim).size();
  if (node.op().starts_with("aten::embedding"))
    return distance == 1 && zero_from_end(node.arg("weight"), 1, size) ? zeros(out, dim) : at::Tensor();
  const bool added = node.is("aten::addmm") || node.is("aten::baddbmm");
  const Argument &a = node.args.at(added ? 1 : 0), &b = node.args.at(added ? 2 : 1);
  if (!a.is_value() || !b.is_value() || rank(a.value) < 2 || rank(b.value) < 2) return {};
  const bool a_zero = distance != 1 && zero_from_end(a, distance, size),
             b_zero = distance != 2 && zero_from_end(b, distance, size);
  if (!a_zero && !b_zero) return {};
  return !added || zero_from_end(node.args[0], distance, size) ? zeros(out, dim) : at::Tensor();
}

at::Tensor RemovedConstants::sequence(const Node& node, const Value* out, size_t dim) const {
  if (node.is("aten::scaled_dot_product_attention"))
    return zero(node.arg("value"), dim) ? zeros(out, dim) : at::Tensor();
  // Gates of zeros keep a state that starts with zeros where it is.
  const auto last_is_zero = [&](const Argument& arg) { return zero(arg, rank(arg.value) - 1); };
  if (dim + 1 != rank(out) || !std::ranges::all_of(listed(node.arg("hx")), last_is_zero)) return {};
  std::vector<Argument> weights;
  if (node.op().ends_with("_cell")) {
    for (const char* name : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
      if (node.arg(name).is_value()) weights.push_back(node.arg(name));
    }
  } else {
    weights = node.arg("params").items;
  }
  const bool rows = std::ranges::all_of(weights, [&](const Argument& weight) { return zero(weight, 0); });
  return rows ? zeros(out, dim) : at::Tensor();
}

}  // namespace ulp::prune
