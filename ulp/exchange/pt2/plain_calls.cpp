#include "ulp/exchange/pt2/plain_calls.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/exchange/arguments.h"
#include "ulp/exchange/pt2/average_calls.h"
#include "ulp/exchange/pt2/where.h"
#include "ulp/graph/describe.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;
using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// clamp(round(x * (1 / s)) + z, qmin, qmax), NaN to qmin.
void spell_quantize(Speller& spell) {
  Value* x = spell.to(spell.tensor("x"), at::kFloat);
  const int64_t axis = spell.integer("axis");
  const auto low = static_cast<double>(spell.integer("qmin")),
             high = static_cast<double>(spell.integer("qmax"));
  Value* inverse = spell.map("aten::reciprocal", {spell.along("scale", axis, *x)});
  Value* y = spell.map("aten::round", {spell.with("aten::mul.Tensor", x, inverse)});
  y = spell.with("aten::add.Tensor", y, spell.along("zero_point", axis, *x));
  y = spell.map("aten::clamp", {spell.map("aten::nan_to_num", {y, IValue(low)}), IValue(low), IValue(high)});
  spell.replace(spell.to(y, static_cast<at::ScalarType>(spell.integer("dtype"))));
}

/// (q - z) * s.
void spell_dequantize(Speller& spell) {
  Value* x = spell.to(spell.tensor("q"), at::kFloat);
  const int64_t axis = spell.integer("axis");
  x = spell.with("aten::sub.Tensor", x, spell.along("zero_point", axis, *x));
  spell.replace(spell.with("aten::mul.Tensor", x, spell.along("scale", axis, *x)));
}

/// Codes u8 [rows, groups, size / 2] of two numbers each as [rows, groups, size].
Value* unpacked(Speller& spell, Value* codes) {
  Value* low = spell.map("aten::bitwise_and.Scalar", {codes, IValue(int64_t{15})});
  Value* high = spell.map("aten::bitwise_right_shift.Tensor_Scalar", {codes, IValue(int64_t{4})});
  Speller::Sizes sizes = codes->meta->sizes;
  sizes.push_back(fixed(2));
  Value* pairs =
      spell.call("aten::stack", {Argument::list({low, high}), IValue(int64_t{-1})}, at::kByte, sizes);
  sizes.pop_back();
  sizes[2] = fixed(2 * sizes[2].offset);
  return spell.call("aten::flatten.using_ints", {pairs, IValue(int64_t{2}), IValue(int64_t{-1})}, at::kByte,
                    sizes);
}

/// (code - zero_point) * scale by groups of a row; codes of 4 bits without zero points use 8. With minima:
/// code * scale - minimum.
void spell_dequantize_weight(Speller& spell) {
  Value* codes = spell.tensor("codes");
  const bool nibbles = codes->meta->dtype == at::kByte;
  if (nibbles) codes = unpacked(spell, codes);
  const Speller::Sizes stored = codes->meta->sizes;
  const int64_t rows = stored.at(0).offset, groups = stored.size() == 3 ? stored[1].offset : 1;
  const int64_t size = stored.back().offset, columns = spell.integer("columns");
  if (stored.size() == 2) codes = spell.view(codes, {rows, 1, size});
  const auto of_groups = [&](const char* argument) {
    return spell.view(spell.to(spell.tensor(argument), at::kFloat), {rows, groups, 1});
  };
  const bool zeros = spell.node().arg("zero_point").is_value(),
             minima = spell.node().arg("minimum").is_value();
  Value* x = spell.to(codes, at::kFloat);
  if (zeros) {
    x = spell.with("aten::sub.Tensor", x, of_groups("zero_point"));
  } else if (nibbles && !minima) {
    x = spell.with("aten::sub.Scalar", x, 8);
  }
  x = spell.with("aten::mul.Tensor", x, of_groups("scale"));
  if (minima) x = spell.with("aten::sub.Tensor", x, of_groups("minimum"));
  x = spell.view(x, {rows, groups * size});
  if (columns != groups * size)
    x = spell.call("aten::slice.Tensor", {x, IValue(int64_t{1}), IValue(int64_t{0}), IValue(columns)},
                   at::kFloat, fixed({rows, columns}));
  spell.replace(x);
}

SizeExpr times(SizeExpr size, int64_t factor) {
  size.numerator *= factor;
  size.offset *= factor;
  for (Polynomial::Term& term : size.rest.terms) {
    const int64_t common = std::gcd(term.numerator * factor, term.denominator);
    term.numerator = term.numerator * factor / common;
    term.denominator /= common;
  }
  return size;
}

Value* reshaped(Speller& spell, Value* x, const Speller::Sizes& sizes) {
  std::vector<Argument> items;
  for (const SizeExpr& size : sizes)
    items.push_back(size.constant() ? Argument(IValue(size.offset)) : Argument(size));
  return spell.call("aten::reshape", {x, Argument::list(std::move(items))}, x->meta->dtype, sizes);
}

/// Part i * w + j of the channels becomes the pixels (y * h + i, x * w + j), without the last rows and
/// columns.
void spell_depth_to_space(Speller& spell) {
  Value* x = spell.tensor("x");
  const int64_t h = spell.integer("h"), w = spell.integer("w");
  const Speller::Sizes whole = x->meta->sizes, result = sizes_of(spell.node(), *spell.node().output());
  const SizeExpr batch = whole.at(0), channels = fixed(fixed_size(spell.node(), *x, 1) / (h * w));
  x = reshaped(spell, x, {batch, fixed(h), fixed(w), channels, whole.at(2), whole.at(3)});
  x = spell.call("aten::permute", {x, IValue(std::vector<int64_t>{0, 3, 4, 1, 5, 2})}, x->meta->dtype,
                 {batch, channels, whole[2], fixed(h), whole[3], fixed(w)});
  x = reshaped(spell, x, {batch, channels, times(whole[2], h), times(whole[3], w)});
  for (const auto& [dim, crop] :
       {std::pair{int64_t{2}, spell.integer("crop_h")}, {int64_t{3}, spell.integer("crop_w")}}) {
    if (crop == 0) continue;
    Speller::Sizes sizes = x->meta->sizes;
    sizes[static_cast<size_t>(dim)] = result[static_cast<size_t>(dim)];
    x = spell.call("aten::slice.Tensor", {x, IValue(dim), IValue(int64_t{0}), IValue(-crop)}, x->meta->dtype,
                   sizes);
  }
  spell.replace(spell.map("aten::contiguous", {x}));
}

/// -1 below 0 and for NaN, else 1.
void spell_binarize(Speller& spell) {
  Value* x = spell.tensor("x");
  Value* above = spell.call("aten::ge.Scalar", {x, IValue(int64_t{0})}, at::kBool, x->meta->sizes);
  Value* y = spell.with("aten::mul.Scalar", spell.to(above, x->meta->dtype), 2);
  spell.replace(spell.with("aten::sub.Scalar", y, 1));
}

/// Of each row the sign of what is larger than ratio times the mean magnitude, times the mean magnitude of
/// these.
void spell_ternarize(Speller& spell) {
  Value* weight = spell.tensor("weight");
  const Speller::Sizes sizes = weight->meta->sizes;
  const at::ScalarType type = weight->meta->dtype;
  std::vector<int64_t> whole;
  int64_t columns = 1;
  for (const SizeExpr& size : sizes) whole.push_back(size.offset);
  for (size_t i = 1; i < whole.size(); ++i) columns *= whole[i];
  const Speller::Sizes row = fixed({whole.at(0), 1});
  const auto by_row = [&](const char* target, Value* x, at::ScalarType of) {
    return spell.call(target, {x, IValue(std::vector<int64_t>{1}), IValue(true)}, of, row);
  };
  Value* rows = spell.call("aten::flatten.using_ints", {weight, IValue(int64_t{1}), IValue(int64_t{-1})},
                           type, fixed({whole[0], columns}));
  Value* size = spell.map("aten::abs", {rows});
  Value* least =
      spell.with("aten::mul.Scalar", by_row("aten::mean.dim", size, type), number_arg(spell.node(), "ratio"));
  Value* kept = spell.call("aten::gt.Tensor", {size, least}, at::kBool, size->meta->sizes);
  Value* count =
      spell.map("aten::clamp_min", {by_row("aten::sum.dim_IntList", kept, at::kLong), IValue(int64_t{1})});
  Value* scale =
      spell.with("aten::div.Tensor",
                 by_row("aten::sum.dim_IntList", spell.with("aten::mul.Tensor", size, kept), type), count);
  Value* y = spell.with("aten::mul.Tensor",
                        spell.with("aten::mul.Tensor", spell.map("aten::sign", {rows}), kept), scale);
  spell.replace(spell.view(y, whole));
}

/// The type of what the call computes out of place: of all that it reads, or of truth values.
at::ScalarType computed_type(const Graph& graph, const Node& node) {
  static const std::set<std::string_view> kTruths = {
      "aten::lt",        "aten::le",          "aten::gt",          "aten::ge",         "aten::eq",
      "aten::ne",        "aten::less",        "aten::less_equal",  "aten::greater",    "aten::greater_equal",
      "aten::not_equal", "aten::logical_not", "aten::logical_and", "aten::logical_or", "aten::logical_xor"};
  if (kTruths.contains(node.op())) return at::kBool;
  const auto type = [&](const Value* value) {
    const at::Tensor stored = graph.attribute_tensor(value);
    return stored.defined() ? stored.scalar_type() : type_of(*value);
  };
  at::ScalarType wide = type(node.args[0].value);
  for (const Value* read : node.reads()) wide = c10::promoteTypes(wide, type(read));
  return wide;
}

/// An operator in place keeps the type of its first argument, whatever else it reads. Gives the node behind
/// which the result is there.
Node* keep_type(Graph& graph, Node& node, Node* next) {
  if (node.args.empty() || !node.args[0].is_value() || node.outputs().size() != 1) return &node;
  const at::Tensor stored = graph.attribute_tensor(node.args[0].value);
  const at::ScalarType own = stored.defined() ? stored.scalar_type() : type_of(*node.args[0].value);
  const at::ScalarType computed = computed_type(graph, node);
  if (computed == own) return &node;
  Value* output = node.output();
  Node* kept = graph.call("aten::to.dtype", {output, IValue(static_cast<int64_t>(own))}, next);
  kept->output()->meta = output->meta;
  if (output->meta) output->meta->dtype = computed;
  graph.replace_uses(output, kept->output(), kept);
  return kept;
}

/// Results without gradients, for those who read them with gradients.
void stop_gradients(Graph& graph, Node& node, Node* next) {
  for (const auto& output : node.outputs()) {
    const auto users = graph.users(output.get());
    const bool floats = output->meta && at::isFloatingType(output->meta->dtype);
    if (!floats || std::ranges::all_of(users, [](const Node* user) { return user->no_grad; })) continue;
    Node* stopped = graph.call("aten::detach", {output.get()}, next);
    stopped->no_grad = true;
    stopped->output()->meta = output->meta;
    graph.replace_uses(output.get(), stopped->output(), stopped);
  }
}

void spell(Graph& graph, Node& node) {
  static constexpr std::pair<const char*, void (*)(Speller&)> kSpelled[] = {
      {"ulp::quantize", spell_quantize},
      {"ulp::dequantize", spell_dequantize},
      {"ulp::average_codes", spell_average},
      {"ulp::dequantize_weight", spell_dequantize_weight},
      {"ulp::binarize", spell_binarize},
      {"ulp::ternarize", spell_ternarize},
      {"ulp::depth_to_space", spell_depth_to_space}};
  for (const auto& [op, function] : kSpelled) {
    if (!node.is(op)) continue;
    Speller speller(graph, node);
    return function(speller);
  }
}

}  // namespace

void spell_out(Graph& graph) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {  // the last one is the output
    Node& node = *nodes[i];
    if (node.kind() != Node::Kind::call) continue;
    Node* last = node.in_place ? keep_type(graph, node, nodes[i + 1]) : &node;
    if (node.no_grad) stop_gradients(graph, *last, nodes[i + 1]);
    try {
      spell(graph, node);  // the node is gone after it
    } catch (const Refused& refused) {
      fail(kExportPt2Where, "expected a graph whose calls have .pt2 forms, got ",
           graph::describe(*refused.node), ": ", refused.reason);
    }
  }
}

}  // namespace ulp::exchange::pt2
