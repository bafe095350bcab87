#include "ulp/exchange/integer_sums.h"

#include <torch/types.h>

#include <limits>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/exchange/arguments.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::exchange {

namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

constexpr int64_t kLargestCode = 255;

/// What gives numbers of the codes that it is given, so that runtimes move the codes.
bool keeps_codes(const Node& node) {
  static constexpr std::string_view kOps[] = {
      "aten::view",       "aten::reshape",    "aten::_unsafe_view",  "aten::view_as",
      "aten::reshape_as", "aten::flatten",    "aten::unflatten",     "aten::squeeze",
      "aten::unsqueeze",  "aten::transpose",  "aten::swapdims",      "aten::t",
      "aten::permute",    "aten::movedim",    "aten::moveaxis",      "aten::expand",
      "aten::slice",      "aten::select",     "aten::narrow",        "aten::chunk",
      "aten::split",      "aten::relu",       "aten::relu6",         "aten::max_pool1d",
      "aten::max_pool2d", "aten::max_pool3d", "aten::pixel_shuffle", "aten::channel_shuffle",
      "aten::contiguous", "aten::clone",      "aten::dropout",       "aten::upsample_nearest2d"};
  return graph::is_any(node, kOps);
}

/// Numbers that were made of codes which are computed.
bool are_codes(const Graph& graph, const Value* value) {
  while (value != nullptr) {
    const Node& node = *value->producer;
    if (node.is("ulp::dequantize")) return !graph.attribute_tensor(node.arg("q").value).defined();
    if (node.kind() != Node::Kind::call || !keeps_codes(node)) return false;
    value = node.args.at(0).value;
  }
  return false;
}

/// Codes of this type that are stored; undefined for all else.
at::Tensor stored_codes(const Graph& graph, const Value* value, at::ScalarType type) {
  if (value == nullptr || !value->producer->is("ulp::dequantize")) return {};
  const at::Tensor codes = graph.attribute_tensor(value->producer->arg("q").value);
  return codes.defined() && codes.scalar_type() == type ? codes.detach() : at::Tensor();
}

bool is_layer(const Node& node) {
  return node.is("aten::linear") || node.is("aten::conv1d") || node.is("aten::conv2d") ||
         node.is("aten::conv3d");
}

bool is_product(const Node& node) {
  return node.is("aten::matmul") || node.is("aten::bmm") || node.is("aten::mm");
}

/// The largest number that a sum of the layer can be, for each channel of its result; undefined where they
/// are no integers.
at::Tensor largest_sums(const Graph& graph, const Node& node) {
  if (!are_codes(graph, node.arg("input").value)) return {};
  const at::Tensor weight = stored_codes(graph, node.arg("weight").value, at::kChar);
  if (!weight.defined()) return {};
  at::Tensor sums = weight.to(at::kLong).abs().flatten(1).sum(1) * kLargestCode;
  const at::Tensor bias = stored_codes(graph, optional_value(node, "bias"), at::kInt);
  if (bias.defined()) sums = sums + bias.to(at::kLong).abs().reshape({-1});
  return sums;
}

constexpr int64_t kLargestSum = std::numeric_limits<int32_t>::max();

void check_layer(const Graph& graph, const Node& node, const char* where) {
  const at::Tensor sums = largest_sums(graph, node);
  if (!sums.defined() || sums.numel() == 0) return;
  const int64_t channel = sums.argmax().item<int64_t>(), largest = sums[channel].item<int64_t>();
  if (largest > kLargestSum)
    fail(where, "expected an int8 layer whose sums fit 32 bits, up to ", kLargestSum, ", got ",
         graph::describe(node), ", where channel ", channel, " can reach ", largest,
         "; leave it in float by the recipe");
}

void check_product(const Graph& graph, const Node& node, const char* where) {
  const Value *a = node.args.at(0).value, *b = node.args.at(1).value;
  if (!are_codes(graph, a) || !are_codes(graph, b) || !a->meta || a->meta->sizes.empty()) return;
  const graph::SizeExpr& depth = a->meta->sizes.back();
  const int64_t largest = depth.constant() ? depth.offset * kLargestCode * kLargestCode : 0;
  if (largest > kLargestSum)
    fail(where, "expected a product of codes whose sums fit 32 bits, up to ", kLargestSum, ", got ",
         graph::describe(node), ", which can reach ", largest, "; leave it in float by the recipe");
}

}  // namespace

void check_integer_sums(const Graph& graph, const char* where) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    if (is_layer(*node)) check_layer(graph, *node, where);
    if (is_product(*node)) check_product(graph, *node, where);
  }
}

}  // namespace ulp::exchange
