#include "ulp/graph/fusion/activation_of.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string_view out_of_place(std::string_view op) {
  if (op.ends_with('_')) op.remove_suffix(1);
  return op;
}

/// The literal is what the word of a spelling says: a word, true or false, or a number.
bool says(const Argument& arg, std::string_view word) {
  if (arg.kind != Argument::Kind::literal) return false;
  if (arg.literal.isString()) return arg.literal.toStringRef() == word;
  if (arg.literal.isBool()) return word == (arg.literal.toBool() ? "true" : "false");
  double wanted = 0;
  const char* end = word.data() + word.size();
  const std::optional<double> found = number(arg);
  return found && std::from_chars(word.data(), end, wanted).ptr == end && *found == wanted;
}

/// "aten::gelu(approximate=tanh)": the op, and every argument in the parentheses.
bool is_spelled(const Node& node, std::string_view spelling) {
  const size_t open = spelling.find('(');
  if (spelling.empty() || out_of_place(node.op()) != spelling.substr(0, open)) return false;
  if (open == std::string_view::npos) return true;
  std::string_view rest = spelling.substr(open + 1, spelling.size() - open - 2);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    const size_t equals = one.find('=');
    if (!says(node.arg(one.substr(0, equals)), one.substr(equals + 1))) return false;
    rest.remove_prefix(one.size() == rest.size() ? one.size() : one.size() + 1);
  }
  return true;
}

/// The line of the table that spells this node; none where there is no such line.
Activation spelled(const Node& node) {
  for (int i = 1; i < kActivationCount; ++i) {
    if (is_spelled(node, kActivations[i].spelling)) return static_cast<Activation>(i);
  }
  return Activation::none;
}

/// A bound given as a literal number; `open` where there is none; nothing for a tensor.
std::optional<float> bound(const Node& node, std::string_view name, float open) {
  const Argument& arg = node.arg(name);
  if (arg.is_none()) return open;
  const std::optional<double> value = number(arg);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

}  // namespace

std::optional<ClampBounds> clamp_bounds(const Node& node) {
  if (node.kind() != Node::Kind::call) return std::nullopt;
  const std::string_view op = out_of_place(node.op());
  std::optional<float> low = -kInfinity, high = kInfinity;
  if (op == "aten::hardtanh") {
    low = bound(node, "min_val", -kInfinity);
    high = bound(node, "max_val", kInfinity);
  } else if (op == "aten::clamp" || op == "aten::clip") {
    low = bound(node, "min", -kInfinity);
    high = bound(node, "max", kInfinity);
  } else if (op == "aten::clamp_min") {
    low = bound(node, "min", -kInfinity);
  } else if (op == "aten::clamp_max") {
    high = bound(node, "max", kInfinity);
  } else {
    const Activation found = spelled(node);
    if (found == Activation::none || is_smooth_activation(found)) return std::nullopt;
    return ClampBounds{info_of(found).low, info_of(found).high};
  }
  if (!low || !high) return std::nullopt;
  return ClampBounds{*low, *high};
}

std::optional<Activation> activation_of(const Node& node) {
  if (node.kind() != Node::Kind::call) return std::nullopt;
  if (const std::optional<ClampBounds> bounds = clamp_bounds(node)) {
    for (int i = 1; i < kActivationCount; ++i) {
      const ActivationInfo& info = kActivations[i];
      if (info.kind == ActivationKind::clamp && info.low == bounds->low && info.high == bounds->high)
        return static_cast<Activation>(i);
    }
    return std::nullopt;
  }
  const Activation found = spelled(node);
  return found == Activation::none ? std::nullopt : std::optional(found);
}

bool is_clamp(const Node& node) {
  const std::optional<Activation> activation = activation_of(node);
  return activation && !is_smooth_activation(*activation);
}

}  // namespace ulp::graph
