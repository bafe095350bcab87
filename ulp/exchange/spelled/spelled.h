// Calls that a format has no operator for, as calls that have one: a rewrite of the graph before it is
// written.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ulp/exchange/speller.h"

namespace ulp::exchange::spelled {

/// Writes formulas before a node, in calls of PyTorch's operators. Sizes of results follow from those of
/// operands, which broadcast.
class Formula {
 public:
  using V = graph::Value*;

  explicit Formula(Speller& spell) : spell_(spell), type_(spell.node().output()->meta->dtype) {}

  /// An argument in the result's type.
  V tensor(const char* argument) { return spell_.to(spell_.tensor(argument), type_); }
  V x() { return tensor("self"); }
  bool is_tensor(const char* argument) const { return spell_.node().arg(argument).is_value(); }
  at::ScalarType type() const { return type_; }
  bool floats() const { return at::isFloatingType(type_); }
  graph::Node& node() { return spell_.node(); }
  Speller& spell() { return spell_; }

  V map(const char* target, V a) { return spell_.map(target, {a}); }
  V add(V a, V b) { return both("aten::add.Tensor", a, b); }
  V sub(V a, V b) { return both("aten::sub.Tensor", a, b); }
  V mul(V a, V b) { return both("aten::mul.Tensor", a, b); }
  V div(V a, V b) { return both("aten::div.Tensor", a, b); }
  V add(V a, double b) { return spell_.with("aten::add.Scalar", a, b); }
  V mul(V a, double b) { return spell_.with("aten::mul.Scalar", a, b); }
  V div(V a, double b) { return spell_.with("aten::div.Scalar", a, b); }
  /// a - x.
  V from(double a, V x) { return spell_.with("aten::rsub.Scalar", x, a); }
  V maximum(V a, V b) { return both("aten::maximum", a, b); }
  V abs(V a) { return map("aten::abs", a); }
  V exp(V a) { return map("aten::exp", a); }
  V log(V a) { return map("aten::log", a); }
  V sqrt(V a) { return map("aten::sqrt", a); }
  /// Truth values: "aten::lt" of tensors or of a tensor and a number.
  V compare(const std::string& op, V a, V b);
  V compare(const std::string& op, V a, double b);
  /// Elements of the one or the other.
  V where(V condition, V a, V b);
  V where(V condition, double a, V b);
  V where(V condition, V a, double b);
  /// Of an operator of two tensors; the type is the first one's.
  V both(const char* target, V a, V b);
  /// Over these dimensions, which stay with size 1: "aten::sum.dim_IntList", "aten::mean.dim", "aten::amax".
  V reduce(const char* target, V x, const std::vector<int64_t>& dims);
  /// Without these dimensions, which have a size of 1.
  V squeeze(V x, const std::vector<int64_t>& dims);
  V view(V x, Speller::Sizes sizes);
  V slice(V x, int64_t dim, int64_t start, int64_t size);
  V transpose(V x, int64_t a, int64_t b);
  V unsqueeze(V x, int64_t dim);
  /// A stored tensor.
  V constant(const at::Tensor& tensor, const char* name);
  void result(V value) { spell_.replace(value); }

  // Functions that are parts of others, exact near 0.
  V log1p(V x);
  V expm1(V x);
  V trunc(V x);

 private:
  Speller& spell_;
  at::ScalarType type_;
};

/// How a call of an op is spelled. A function that finds it cannot returns without a result, and the call
/// stays.
struct SpelledRow {
  std::string_view op;
  void (*spell)(Formula&);
};
using SpelledTable = std::span<const SpelledRow>;

/// aten::max and aten::min along a dimension whose places are read get these from aten::argmax or
/// aten::argmin, for formats whose operators give the one or the other. Both give the first place of several.
void split_extremes(graph::Graph& graph);

/// Spells the calls that a table has, of those that a writer wants spelled.
void spell_out(graph::Graph& graph, const std::function<bool(const graph::Node&)>& wanted);

}  // namespace ulp::exchange::spelled
