#include "ulp/graph/passes/pattern.h"

#include <algorithm>

namespace ulp::graph {

bool is_any(const Node& node, std::span<const std::string_view> ops) {
  return std::ranges::any_of(ops, [&](std::string_view op) { return node.is(op); });
}

bool is_any(const Node& node, std::initializer_list<std::string_view> ops) {
  return is_any(node, std::span(ops.begin(), ops.size()));
}

const char* zeros_in_place_of(std::string_view target) {
  if (target == "aten::empty_like") return "aten::zeros_like";
  if (target == "aten::new_empty") return "aten::new_zeros";
  if (target == "aten::empty.memory_format") return "aten::zeros";
  return nullptr;
}

Node* sole_user(const Graph& graph, const Node& node) {
  if (node.outputs().size() != 1) return nullptr;
  std::vector<Node*> readers = graph.users(node.output());
  return readers.size() == 1 ? readers.front() : nullptr;
}

Node* only_reader(const Graph& graph, const Value* value) {
  const std::vector<Node*> readers = graph.users(value);
  if (readers.size() != 1 || readers[0]->kind() != Node::Kind::call) return nullptr;
  const std::vector<Value*> reads = readers[0]->reads();
  return std::count(reads.begin(), reads.end(), value) == 1 ? readers[0] : nullptr;
}

std::string other_users(const Graph& graph, const Value* value, const Node& expected) {
  std::string text;
  for (const Node* user : graph.users(value)) {
    if (user != &expected) text += (text.empty() ? "" : ", ") + label(*user);
  }
  return text;
}

Node* producer(const Argument& arg, std::string_view op) {
  return arg.is_value() && arg.value->producer->is(op) ? arg.value->producer : nullptr;
}

int64_t rank(const Argument& arg) {
  if (!arg.is_value() || !arg.value->meta) return -1;
  return static_cast<int64_t>(arg.value->meta->sizes.size());
}

std::optional<int64_t> integer(const Argument& arg) {
  if (arg.kind != Argument::Kind::literal || !arg.literal.isInt()) return std::nullopt;
  return arg.literal.toInt();
}

std::optional<std::vector<int64_t>> integers(const Argument& arg) {
  if (arg.kind != Argument::Kind::literal) return std::nullopt;
  if (arg.literal.isInt()) return std::vector<int64_t>{arg.literal.toInt()};
  if (!arg.literal.isIntList()) return std::nullopt;
  return arg.literal.toIntVector();
}

std::optional<double> number(const Argument& arg) {
  if (arg.kind != Argument::Kind::literal) return std::nullopt;
  if (arg.literal.isDouble()) return arg.literal.toDouble();
  if (arg.literal.isInt()) return static_cast<double>(arg.literal.toInt());
  return std::nullopt;
}

std::vector<int64_t> spread(std::vector<int64_t> list, size_t n) {
  if (list.size() == 1) list.assign(n, list[0]);
  return list;
}

}  // namespace ulp::graph
