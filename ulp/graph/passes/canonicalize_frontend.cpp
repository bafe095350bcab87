#include "ulp/graph/passes/canonicalize_frontend.h"

#include <torch/types.h>

#include <algorithm>
#include <array>

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {
namespace {

/// A constant of no dimensions, of the type of a result.
Value* scalar_constant(Graph& graph, const Node& node, const c10::Scalar& number) {
  const std::string name = graph.unique_name(node.name() + ".number");
  const at::ScalarType type = node.output()->meta->dtype;
  graph.set_attribute(name, {Attribute::Kind::constant, torch::scalar_tensor(number, type)});
  return graph.attribute(name);
}

/// Puts a constant in the place of a call whose results all have this number.
const char* replace_by_constant(Graph& graph, Node& node, const Argument& number) {
  const bool known = number.kind == Argument::Kind::literal && number.literal.isScalar();
  if (!known || !node.output()->meta) return nullptr;
  graph.replace_uses(node.output(), scalar_constant(graph, node, number.literal.toScalar()));
  graph.erase(&node);
  return "a constant";
}

/// Whether the call gives the same for a constant of no dimensions as for a filled tensor: its other operand is
/// what the filled one is like, in sizes and type, also under autocast.
bool spreads(const Node& reader, const Value* filled, const Value* like) {
  if (!is_any(reader, {"aten::sub", "aten::div", "aten::mul", "aten::add", "aten::pow", "aten::maximum",
                       "aten::minimum", "aten::atan2", "aten::fmod", "aten::remainder"}))
    return false;
  if (reader.args.size() < 2 || !reader.args[0].is_value() || !reader.args[1].is_value()) return false;
  const Value* other = reader.args[reader.args[0].value == filled ? 1 : 0].value;
  return other == like && other->meta && other->meta->dtype == filled->meta->dtype &&
         !other->meta->sizes.empty() && other->meta->sizes == filled->meta->sizes;
}

/// What is filled is not read.
const char* from_fill(Graph& graph, Node& node) {
  if (node.target() != "aten::fill.Scalar" || !node.args[0].is_value() || !node.output()->meta)
    return nullptr;
  const Node& filled = *node.args[0].value->producer;
  if (!is_any(filled, {"aten::empty_like", "aten::zeros_like", "aten::ones_like"})) return nullptr;
  const std::vector<Node*> readers = graph.users(node.output());
  const bool all = std::ranges::all_of(readers, [&](const Node* one) {
    return one->kind() == Node::Kind::call && spreads(*one, node.output(), filled.args[0].value);
  });
  if (!all || readers.empty()) return nullptr;
  const char* made = replace_by_constant(graph, node, node.arg("value"));
  for (Node* reader : made ? readers : std::vector<Node*>())
    reader->in_place = false;  // types are equal; the constant has not the result's sizes
  return made;
}

const char* from_zero(Graph& graph, Node& node) {
  if (!node.is("aten::zero")) return nullptr;
  graph.retarget(&node, "aten::fill.Scalar", {node.args[0], c10::IValue(int64_t{0})});
  return "aten::fill.Scalar";
}

/// What nobody has written may hold any numbers.
const char* from_empty(Graph& graph, Node& node) {
  const char* zeros = zeros_in_place_of(node.target());
  if (zeros == nullptr) return nullptr;
  std::vector<Argument> args = node.args;
  if (node.is("aten::empty")) args.pop_back();  // the memory format
  graph.retarget(&node, zeros, std::move(args));
  return zeros;
}

const char* from_pad(Graph& graph, Node& node) {
  if (!node.is("aten::_pad_enum")) return nullptr;
  // As at::padding_mode counts them.
  static constexpr std::array<const char*, 4> kModes = {"reflect", "replicate", "circular", "constant"};
  const std::optional<int64_t> mode = integer(node.arg("mode"));
  if (!mode || *mode < 0 || *mode >= std::ssize(kModes)) return nullptr;
  const Argument word = c10::IValue(std::string(kModes[static_cast<size_t>(*mode)]));
  graph.retarget(&node, "aten::pad", {node.arg("self"), node.arg("pad"), word, node.arg("value")});
  return "aten::pad";
}

const char* from_norm(Graph& graph, Node& node) {
  const bool whole = node.target() == "aten::norm.Scalar",
             typed = node.target() == "aten::norm.ScalarOpt_dim_dtype";
  if (!whole && !typed && node.target() != "aten::norm.ScalarOpt_dim") return nullptr;
  const Argument none, no = c10::IValue(false);
  const Argument order = node.arg("p").is_none() ? Argument(c10::IValue(2)) : node.arg("p");
  graph.retarget(&node, "aten::linalg_vector_norm",
                 {node.arg("self"), order, whole ? none : node.arg("dim"), whole ? no : node.arg("keepdim"),
                  typed ? node.arg("dtype") : none});
  return "aten::linalg_vector_norm";
}

const char* from_scalar_tensor(Graph& graph, Node& node) {
  return node.is("aten::scalar_tensor") ? replace_by_constant(graph, node, node.arg("s")) : nullptr;
}

/// Whether the tensors have one type.
bool of_one_type(const Node& node, std::initializer_list<Argument> tensors) {
  const auto& result = node.output()->meta;
  return result && std::ranges::all_of(tensors, [&](const Argument& one) {
           return one.is_none() ||
                  (one.is_value() && one.value->meta && one.value->meta->dtype == result->dtype);
         });
}

}  // namespace

const char* clamp_by_bounds(Graph& graph, Node& node) {
  if (node.target() != "aten::clamp.Tensor") return nullptr;
  if (!of_one_type(node, {node.arg("self"), node.arg("min"), node.arg("max")})) return nullptr;
  const Argument low = node.arg("min"), high = node.arg("max"), x = node.arg("self");
  if (low.is_none() || high.is_none()) {
    if (low.is_none() == high.is_none()) return nullptr;
    graph.retarget(&node, high.is_none() ? "aten::maximum" : "aten::minimum",
                   {x, high.is_none() ? low : high});
    return high.is_none() ? "aten::maximum" : "aten::minimum";
  }
  Node* above = graph.call("aten::maximum", {x, low}, &node);
  above->scope = node.scope;
  const auto sizes = [](const Argument& arg) {
    return arg.value->meta ? arg.value->meta->sizes : std::vector<SizeExpr>();
  };
  // Where x is as large as the result, so is what is above the lower bound.
  if (node.output()->meta && x.value->meta && x.value->meta->dtype == node.output()->meta->dtype &&
      sizes(x) == node.output()->meta->sizes)
    above->output()->meta = node.output()->meta;
  graph.retarget(&node, "aten::minimum", {above->output(), high});
  return "aten::minimum";
}

const char* from_frontend(Graph& graph, Node& node) {
  for (const auto form : {from_empty, from_zero, from_fill, from_pad, from_norm, from_scalar_tensor}) {
    if (const char* made = form(graph, node)) return made;
  }
  return nullptr;
}

}  // namespace ulp::graph
