// The functions of a pointwise step for each ATen op; internal to the lowering of pointwise nodes.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "ulp/lower/builder.h"
#include "ulp/runtime/ops/pointwise_op.h"

namespace ulp::lowering {

using Operand = runtime::PointwiseOperand;
using kernels::PointwiseOp;

/// Writes the program of one step and gathers what it reads.
class PointwiseWriter {
 public:
  /// `inside`: the nodes of the step.
  PointwiseWriter(Builder& builder, std::vector<const graph::Node*> inside);

  /// The program of all nodes; the last one is the result.
  runtime::Step step();

  Operand number(double value) const;
  /// An argument of the node: a number, a value, or what a node of the step made.
  Operand argument(const graph::Node& node, std::string_view name);
  /// A constant of the graph with other sizes than its own, for those that broadcast from the left.
  Operand reshaped(const graph::Node& node, std::string_view name, std::vector<int64_t> shape);
  Operand call(PointwiseOp op, std::initializer_list<Operand> operands);

 private:
  Operand value(const graph::Node& node, const graph::Value* value);
  Operand constant(const graph::Node& node, const at::Tensor& tensor, const std::string& name);
  Operand input(int32_t tensor);

  Builder& builder_;
  std::vector<const graph::Node*> inside_;
  std::vector<std::pair<const graph::Value*, Operand>> made_;
  runtime::PointwiseText program_;
  int64_t exact_ = 0;          ///< PointwiseAttributes::exact_inputs
  bool looks_at_all_ = false;  ///< functions are those of a node that may_grow()
  runtime::Step step_{.op = runtime::Op::pointwise};
};

/// How the step does an op of ATen.
struct PointwiseLowering {
  std::string_view op;
  Operand (*write)(PointwiseWriter&, const graph::Node&);
  int functions = 1;  ///< at most
  int numbers = 0;    ///< at most, besides those among the arguments
};

/// Whether a node's results are integers of 32 or 64 bits that may be larger than what it reads: f32 holds
/// them below 2^24 alone, so that each function of it is looked at as it runs (PointwiseOp::exact).
bool may_grow(const graph::Node& node);

/// What an op of 8 or 16-bit integers may leave the range of its type by: the result then wraps around, as in
/// LibTorch. The functions and numbers that this takes, or that may_grow() does; both 0 for other nodes.
struct Wrapping {
  int functions = 0, numbers = 0;
};
Wrapping wrapping_of(const graph::Node& node);
/// The result of such a node, which `x` is before it wraps around. Throws Unsupported for what f32 does not
/// hold.
Operand wrapped(PointwiseWriter& write, const graph::Node& node, Operand x);

/// A whole number in a type of integers of 8 or 16 bits, as LibTorch brings numbers to the type of a tensor:
/// wrapped around. Other numbers, and those beside other types, stay as they are.
double in_range_of(at::ScalarType type, double x);

/// The lowest `bits` bits of whole numbers, as a number that is not negative.
Operand low_bits(PointwiseWriter& write, Operand x, int bits);

/// Null where the step cannot do it.
const PointwiseLowering* find_pointwise(const graph::Node& node);

}  // namespace ulp::lowering
