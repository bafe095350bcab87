// Attributes of pointwise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/kernels/pointwise/pointwise_list.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// An operand of a function of a pointwise step.
struct PointwiseOperand {
  /// Where the operand comes from.
  enum class Kind : uint8_t {
    input,     ///< "x0": an input of the step
    constant,  ///< "c0": the constant with this role
    result,    ///< "t0": what the function of this index made
    number     ///< "0.5"
  };
  Kind kind = Kind::input;
  int32_t index = 0;
  float number = 0;
};

/// One function of kernels/pointwise/pointwise_list.h with its operands.
struct PointwiseFunction {
  kernels::PointwiseOp op = kernels::PointwiseOp::add;
  std::vector<PointwiseOperand> operands;
};

/// The functions of a pointwise step in order; the last one makes the result. As text, the form of engine
/// files: "mul x0 c0; add t0 0.5; max t1 0".
struct ULP_API PointwiseText {
  std::vector<PointwiseFunction> functions;

  /// The most of a step: functions, numbers, and inputs with constants.
  static constexpr int kMaxFunctions = kernels::kMaxPointwiseSteps,
                       kMaxNumbers = kernels::kMaxPointwiseLiterals,
                       kMaxInputs = kernels::kMaxPointwiseInputs;
  static constexpr const char* kExpected =
      "functions of the engine's list with operands, such as \"mul x0 c0; add t0 0.5\"";
  std::string text() const;
  /// Nothing for a text that names no function, or has another number of operands than the function.
  static std::optional<PointwiseText> from_text(const std::string& text);
  bool operator==(const PointwiseText& other) const { return text() == other.text(); }
};

/// The program of a pointwise step.
struct PointwiseAttributes {
  PointwiseText program;
  /// Bit i: the integers of input i count, or are compared as integers. A run with one that f32 does not hold
  /// is refused. Those of other inputs are rounded, as a cast to a float does.
  int64_t exact_inputs = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "program"}, program);
    visit({.name = "exact_inputs", .min = 0, .max = (1 << kernels::kMaxPointwiseInputs) - 1}, exact_inputs);
  }
  bool operator==(const PointwiseAttributes&) const = default;
};

}  // namespace ulp::runtime
