#include "ulp/lower/channel_chain.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ulp/graph/extract.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// Functions of one number, whatever their shape.
constexpr std::array<std::string_view, 24> kUnary = {
    "aten::relu",        "aten::relu6", "aten::hardtanh",   "aten::clamp",       "aten::clamp_min",
    "aten::clamp_max",   "aten::clip",  "aten::leaky_relu", "aten::tanh",        "aten::sigmoid",
    "aten::neg",         "aten::abs",   "aten::square",     "aten::hardsigmoid", "aten::hardswish",
    "aten::silu",        "aten::gelu",  "aten::elu",        "aten::softplus",    "aten::softsign",
    "aten::log_sigmoid", "aten::selu",  "aten::mish",       "aten::celu"};
/// With a number or one number a channel besides.
constexpr std::array<std::string_view, 7> kBinary = {
    "aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::div", "aten::maximum", "aten::minimum"};
/// Of kUnary those that keep or turn the order in f32, too.
constexpr std::array<std::string_view, 8> kOrdered = {"aten::relu",  "aten::relu6",     "aten::hardtanh",
                                                      "aten::clamp", "aten::clamp_min", "aten::clamp_max",
                                                      "aten::clip",  "aten::neg"};

size_t rank_of(const Value* value) {
  return value->meta ? value->meta->sizes.size() : 0;
}

/// A tensor of one number, or of one for each channel of a value of this rank.
bool is_of_channels(const at::Tensor& tensor, size_t rank, int64_t dim, int64_t channels) {
  if (!tensor.defined()) return false;
  if (tensor.numel() == 1) return tensor.dim() <= static_cast<int64_t>(rank);
  const int64_t place = tensor.dim() - (static_cast<int64_t>(rank) - dim);  // of the channels in the tensor
  return place >= 0 && tensor.numel() == channels && tensor.size(place) == channels;
}

/// Why the op is no part of a chain that comes from `x`; empty where it is.
std::string obstacle(const Graph& graph, const Node& node, const Value* x, int64_t dim) {
  const size_t rank = rank_of(x);
  if (static_cast<int64_t>(rank) <= dim) return "sizes are not known";
  for (size_t d = 1; d < rank; ++d) {
    if (!x->meta->sizes[d].constant()) return "its batch is not dimension 0";
  }
  const int64_t channels = x->meta->sizes[static_cast<size_t>(dim)].offset;
  if (node.is("ulp::binarize")) return "";
  if (node.is("aten::batch_norm")) {
    const bool whole = dim == 1 && node.arg("input").value == x &&
                       node.arg("training").kind == Argument::Kind::literal &&
                       !node.arg("training").literal.toBool() && !node.arg("running_mean").is_none();
    return whole ? "" : "its batch norm is not one of channels in eval mode";
  }
  if (node.is("aten::prelu")) {
    const at::Tensor slope = graph.attribute_tensor(node.args[1].value);
    const bool fits = slope.defined() && (slope.numel() == 1 || (dim == 1 && slope.numel() == channels));
    return fits ? "" : "its slopes are computed";
  }
  if (is_any(node, kUnary)) {
    const auto is_tensor = [&](const Argument& arg) { return arg.is_value() && arg.value != x; };
    return std::ranges::none_of(node.args, is_tensor) ? "" : "it reads another tensor";
  }
  if (!is_any(node, kBinary)) return "the engine has no signs behind " + std::string(node.op());
  const Argument& other = node.args[0].is_value() && node.args[0].value == x ? node.args[1] : node.args[0];
  if (!other.is_value()) return other.literal.isScalar() ? "" : "it reads no number";
  if (!is_of_channels(graph.attribute_tensor(other.value), rank, dim, channels))
    return "'" + other.value->name + "' is no constant of channels";
  const bool same = node.output()->meta && node.output()->meta->sizes == x->meta->sizes;
  return same ? "" : "it changes the shape";
}

/// True where the order of numbers is known to be kept, or turned, in each channel.
bool is_ordered(const Graph& graph, const Node& node) {
  if (is_any(node, kOrdered) || is_any(node, kBinary) || node.is("aten::batch_norm")) {
    return !(node.is("aten::div") && !node.args[0].is_value()) &&
           !(node.is("aten::div") && graph.attribute_tensor(node.args[0].value).defined());
  }
  if (node.is("aten::leaky_relu")) return graph::number(node.args[1]).value_or(-1) >= 0;
  if (!node.is("aten::prelu")) return false;
  return graph.attribute_tensor(node.args[1].value).ge(0).all().item<bool>();
}

/// The tensor that the op works on: the one that is no attribute.
const Value* subject(const Graph& graph, const Node& node) {
  const Value* found = nullptr;
  for (const Value* value : node.reads()) {
    if (graph.attribute_tensor(value).defined()) continue;
    if (found != nullptr && found != value) return nullptr;
    found = value;
  }
  return found;
}

int64_t channel_dim(const Value* value) {
  return rank_of(value) == 3 ? 2 : 1;
}

}  // namespace

ChannelChain chain_from(const Graph& graph, const Value* start, int64_t dim, std::string& why) {
  ChannelChain chain{.start = start, .dim = dim, .nodes = {}};
  for (const Value* x = start;; x = chain.nodes.back()->output()) {
    const std::vector<Node*> users = graph.users(x);
    const bool single = users.size() == 1 && users[0]->kind() == Node::Kind::call;
    why =
        single ? obstacle(graph, *users[0], x, dim) : "its result is read by several ops, or is the model's";
    if (!why.empty()) return {.start = start, .dim = dim, .nodes = {}};
    chain.nodes.push_back(users[0]);
    if (users[0]->is("ulp::binarize")) return chain;
  }
}

ChannelChain ordered_chain_to(const Graph& graph, const Node* binarize) {
  ChannelChain chain{
      .start = binarize->args[0].value, .dim = channel_dim(binarize->args[0].value), .nodes = {binarize}};
  for (;;) {
    const Node& node = *chain.start->producer;
    if (node.kind() != Node::Kind::call || graph.users(chain.start).size() != 1) return chain;
    const Value* x = subject(graph, node);
    if (x == nullptr || !obstacle(graph, node, x, chain.dim).empty() || !is_ordered(graph, node))
      return chain;
    chain.nodes.insert(chain.nodes.begin(), &node);
    chain.start = x;
  }
}

at::Tensor signs_of(const Graph& graph, const ChannelChain& chain, const at::Tensor& numbers) {
  const at::NoGradGuard no_grad;
  graph::GraphModule alone(
      graph::extract(graph, chain.nodes, {chain.start}, {chain.binarize()->output()}).graph);
  alone.eval();
  // [numbers, C] spread over the places of one item, in as many items as it takes.
  std::vector<int64_t> sizes;
  int64_t places = 1;
  for (size_t d = 1; d < chain.start->meta->sizes.size(); ++d) {
    sizes.push_back(chain.start->meta->sizes[d].offset);
    if (static_cast<int64_t>(d) != chain.dim) places *= sizes.back();
  }
  const int64_t count = numbers.size(0), items = (count + places - 1) / places;
  const at::Tensor missing = numbers.narrow(0, count - 1, 1).expand({items * places - count, -1});
  at::Tensor x = at::cat({numbers, missing}).view({items, places, numbers.size(1)});
  const bool last = chain.dim == static_cast<int64_t>(sizes.size());
  if (!last) x = x.transpose(1, 2);
  sizes.insert(sizes.begin(), items);
  x = x.reshape(sizes).contiguous();
  const auto run = [&](const at::Tensor& given) {
    const at::Tensor made = alone.forward_all({given}).at(0).contiguous();
    const at::Tensor signs = last ? made : made.view({items, numbers.size(1), places}).transpose(1, 2);
    return signs.reshape({items * places, -1}).narrow(0, 0, count).gt(0);
  };
  const at::Tensor signs = run(x);
  if (x.dim() != 4) return signs;
  return signs.equal(run(x.contiguous(at::MemoryFormat::ChannelsLast))) ? signs : at::Tensor();
}

}  // namespace ulp::lowering
