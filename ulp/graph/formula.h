// Formulas in calls of PyTorch's operators, written before a node whose place they take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// A size that is a number.
SizeExpr fixed(int64_t size);
std::vector<SizeExpr> fixed(const std::vector<int64_t>& sizes);

/// Thrown by what reads arguments of a node: the call cannot be written as a formula, for this reason.
struct CannotWrite {
  std::string reason;
};

/// Adds calls before a node, of the same module. Their types and sizes follow from those of the operands,
/// which broadcast.
class Formula {
 public:
  using V = Value*;
  using Sizes = std::vector<SizeExpr>;

  /// New nodes are called as `wish`, or as their operators where it is empty.
  Formula(Graph& graph, Node& node, std::string wish = "")
      : graph_(graph), node_(node), wish_(std::move(wish)) {}

  Graph& graph() { return graph_; }
  Node& node() { return node_; }
  /// Of the node's first result.
  at::ScalarType type() const { return node_.output()->meta.value().dtype; }
  bool floats() const { return at::isFloatingType(type()); }

  // Arguments of the node, as they are in eval mode; throw CannotWrite for another kind.
  /// A tensor, whose type and sizes are known; stored ones get theirs.
  V operand(const char* argument);
  bool is_tensor(const char* argument) const { return node_.arg(argument).is_value(); }
  int64_t integer(const char* argument) const;
  double number(const char* argument) const;
  bool flag(const char* argument) const;
  std::vector<int64_t> integers(const char* argument) const;
  /// A dimension of x, counted from the front.
  int64_t dim(const char* argument, const V x) const;
  /// A size that is not free.
  static int64_t size(const V x, int64_t dim);

  /// A call of one result, or the first result of several.
  V call(const char* target, std::vector<Argument> args, at::ScalarType type, Sizes sizes);
  V to(V a, at::ScalarType type);
  /// Of one tensor; the result has its type and sizes.
  V map(const char* target, V a) { return call(target, {a}, a->meta->dtype, a->meta->sizes); }
  V with(const char* target, V a, double b);
  /// Of two tensors; the type is the first one's.
  V both(const char* target, V a, V b);
  V add(V a, V b) { return both("aten::add.Tensor", a, b); }
  V sub(V a, V b) { return both("aten::sub.Tensor", a, b); }
  V mul(V a, V b) { return both("aten::mul.Tensor", a, b); }
  V div(V a, V b) { return both("aten::div.Tensor", a, b); }
  V add(V a, double b) { return with("aten::add.Scalar", a, b); }
  V mul(V a, double b) { return with("aten::mul.Scalar", a, b); }
  V div(V a, double b) { return with("aten::div.Scalar", a, b); }
  /// a - x.
  V from(double a, V x) { return with("aten::rsub.Scalar", x, a); }
  V maximum(V a, V b) { return both("aten::maximum", a, b); }
  V abs(V a) { return map("aten::abs", a); }
  V exp(V a) { return map("aten::exp", a); }
  V log(V a) { return map("aten::log", a); }
  V sqrt(V a) { return map("aten::sqrt", a); }
  V neg(V a) { return map("aten::neg", a); }
  /// Truth values: "aten::lt" of tensors or of a tensor and a number.
  V compare(const std::string& op, V a, V b);
  V compare(const std::string& op, V a, double b);
  V either(V a, V b) { return both("aten::logical_or", a, b); }
  /// Elements of the one or the other.
  V where(V condition, V a, V b);
  V where(V condition, double a, V b);
  V where(V condition, V a, double b);
  /// Over these dimensions, which stay with size 1: "aten::sum.dim_IntList", "aten::mean.dim", "aten::amax".
  V reduce(const char* target, V x, const std::vector<int64_t>& dims);

  // Shapes. Dimensions are counted from the front.
  V view(V x, Sizes sizes);
  /// Without these dimensions, which have a size of 1.
  V squeeze(V x, const std::vector<int64_t>& dims);
  V unsqueeze(V x, int64_t dim);
  V slice(V x, int64_t dim, int64_t start, int64_t size);
  V transpose(V x, int64_t a, int64_t b);
  V permute(V x, const std::vector<int64_t>& order);
  V flip(V x, const std::vector<int64_t>& dims);
  V cat(const std::vector<V>& parts, int64_t dim);
  V expand(V x, const Sizes& sizes);
  /// The elements of a dimension at stored places.
  V pick(V x, int64_t dim, const at::Tensor& places, const char* name);

  /// A stored tensor.
  V constant(const at::Tensor& tensor, const char* name);
  /// 0, 1, ... along one dimension of so many.
  V places(int64_t size, int64_t dim, int64_t rank, at::ScalarType type);

  /// The readers of the node's only result read this one instead, and the node goes.
  void result(V made);
  /// Those of the i-th of several results; the node goes when nobody reads it.
  void result(size_t i, V made);
  bool is_read(size_t i) const { return !graph_.users(node_.output(i)).empty(); }
  /// Whether a result was given.
  bool done() const { return done_; }

 private:
  Graph& graph_;
  Node& node_;
  std::string wish_;
  bool done_ = false;
};

}  // namespace ulp::graph
