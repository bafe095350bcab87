#include "ulp/exchange/carried_types.h"

#include <ATen/core/function_schema.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

#include "ulp/exchange/arguments.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

/// Ops whose first result is places or truth values, which say nothing of the type of the elements.
constexpr std::array<std::string_view, 11> kPlaces = {
    "aten::argmax", "aten::argmin", "aten::argsort", "aten::eq",          "aten::ne",        "aten::lt",
    "aten::le",     "aten::gt",     "aten::ge",      "aten::logical_and", "aten::logical_or"};
/// Arguments that choose elements.
constexpr std::array<std::string_view, 3> kChoosing = {"condition", "mask", "index"};

at::ScalarType computed_type(const Node& node) {
  return type_of(graph::is_any(node, kPlaces) ? *value_arg(node, "self") : *node.output());
}

const PeerTypes* row_of(const Node& node, std::span<const PeerTypes> table) {
  const auto found = std::ranges::find_if(table, [&](const PeerTypes& row) { return node.is(row.op); });
  return found == table.end() ? nullptr : &*found;
}

/// A larger type that the peer has; nothing where the type is there, or no larger one.
std::optional<at::ScalarType> carrier(at::ScalarType type, const TypeSet& there) {
  if (there.contains(type) || at::isFloatingType(type)) return std::nullopt;
  const bool narrow = type != at::kInt && type != at::kLong;
  if (narrow && there.contains(at::kInt)) return at::kInt;
  return type != at::kLong && there.contains(at::kLong) ? std::optional(at::kLong) : std::nullopt;
}

Value* cast_to(Graph& graph, Value* value, at::ScalarType type, Node* before) {
  Node* node = graph.call("aten::to.dtype", {value, c10::IValue(static_cast<int64_t>(type))}, before);
  node->output()->meta = value->meta;
  node->output()->meta->dtype = type;
  return node->output();
}

/// Numbers beside elements, which LibTorch takes into their type: -1 beside uint8 is 255.
constexpr std::array<std::string_view, 5> kElements = {"self", "other", "value", "min", "max"};

/// A whole number as the element of this type that LibTorch makes of it.
int64_t element_of(int64_t number, at::ScalarType type) {
  return at::scalar_tensor(number, at::kLong).to(type).item<int64_t>();
}

/// Stored tensors need not have been seen at capture.
void know_stored(const Graph& graph, Value& value) {
  const at::Tensor stored = graph.attribute_tensor(&value);
  if (value.meta || !stored.defined()) return;
  value.meta = graph::TensorMeta{.dtype = stored.scalar_type(), .sizes = {}};
  for (const int64_t size : stored.sizes()) value.meta->sizes.push_back({0, 1, size});
}

void carry(Graph& graph, Node& node, at::ScalarType from, at::ScalarType to) {
  const auto& names = node.schema().arguments();
  for (size_t i = 0; i < node.args.size(); ++i) {
    Argument& arg = node.args[i];
    const bool element = std::ranges::find(kElements, names[i].name()) != kElements.end();
    if (element && from != at::kBool && arg.kind == Argument::Kind::literal && arg.literal.isInt())
      arg.literal = element_of(arg.literal.toInt(), from);
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    Argument& arg = node.args[i];
    const bool chooses = std::ranges::find(kChoosing, names[i].name()) != kChoosing.end();
    if (chooses || !arg.is_value()) continue;
    know_stored(graph, *arg.value);
    if (arg.value->meta && arg.value->meta->dtype == from) arg = cast_to(graph, arg.value, to, &node);
  }
  const auto place = std::ranges::find(graph.nodes(), &node, &std::unique_ptr<Node>::get);
  Node* next = std::next(place)->get();
  for (const auto& result : node.outputs()) {
    if (!result->meta || result->meta->dtype != from) continue;
    result->meta->dtype = to;
    Value* back = cast_to(graph, result.get(), from, next);
    graph.replace_uses(result.get(), back, back->producer);
  }
}

}  // namespace

void carry_types(Graph& graph, std::span<const PeerTypes> table) {
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && row_of(*node, table) != nullptr && node->output()->meta)
      calls.push_back(node.get());
  }
  for (Node* node : calls) {
    const at::ScalarType type = computed_type(*node);
    const PeerTypes& row = *row_of(*node, table);
    const auto to = row.carried ? carrier(type, row.types) : std::nullopt;
    if (to) carry(graph, *node, type, *to);
  }
}

void expect_moves_of(const Node& node, const TypeSet& held_wider) {
  constexpr std::string_view kMoves[] = {
      "aten::alias",     "aten::broadcast_to", "aten::cat",        "aten::chunk",
      "aten::clone",     "aten::contiguous",   "aten::detach",     "aten::expand",
      "aten::expand_as", "aten::flatten",      "aten::flip",       "aten::gather",
      "aten::index",     "aten::index_select", "aten::lift_fresh", "aten::movedim",
      "aten::narrow",    "aten::permute",      "aten::repeat",     "aten::repeat_interleave",
      "aten::reshape",   "aten::roll",         "aten::select",     "aten::slice",
      "aten::split",     "aten::squeeze",      "aten::stack",      "aten::t",
      "aten::to",        "aten::_to_copy",     "aten::transpose",  "aten::type_as",
      "aten::unbind",    "aten::unflatten",    "aten::unsqueeze",  "aten::view",
      "aten::where"};
  const bool moves = graph::is_any(node, kMoves);
  for (const auto& made : node.outputs()) {
    if (!moves && made->meta && held_wider.contains(made->meta->dtype) && node.op().starts_with("aten::"))
      refuse(node, "expected results of float32, int32, int64 or bool, got ",
             c10::toString(made->meta->dtype));
  }
}

void expect_peer_type(const Node& node, std::span<const PeerTypes> table) {
  const PeerTypes* row = row_of(node, table);
  if (row == nullptr || row->types.contains(computed_type(node))) return;
  constexpr std::array kShown = {at::kBool, at::kChar, at::kByte,  at::kShort, at::kInt,
                                 at::kLong, at::kHalf, at::kFloat, at::kDouble};
  std::string known;
  for (const at::ScalarType type : kShown) {
    if (row->types.contains(type)) known += (known.empty() ? "" : ", ") + std::string(c10::toString(type));
  }
  refuse(node, "expected elements of ", known, ", in which other runtimes compute it, got ",
         c10::toString(computed_type(node)));
}

}  // namespace ulp::exchange
