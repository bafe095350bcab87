// How an op looks at its step: tensors and constants by position and role, and problems that name the step.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

class PrepackedWeights;  // ops/packs.h

/// What is wrong with a plan; verify() and load() turn it into the error their callers expect.
struct ULP_API PlanProblem {
  std::string text;
};

template <typename... Parts>
[[noreturn]] void problem(const Parts&... parts) {
  throw PlanProblem{concatenate(parts...)};
}

/// "[batch, 3, 32, 32]"
std::string shape_text(std::span<const int64_t> shape);
/// "[batch * 8, 3, 32, 32]": with the rows of each item.
std::string shape_text(const TensorInfo& tensor);

/// What looking through long constants gave. Many steps may share one.
struct ConstantFacts {
  /// The channels of an 8-bit layer that decide whether all of them are right.
  struct Channels {
    int64_t largest = 0, largest_sum = 0;  ///< |bias| + 255 * sum |w|
    int64_t low = 0, high = 0;             ///< of the weight's scale, a NaN among them first
    bool positive = true;                  ///< every scale is finite and > 0
  };
  std::set<std::string> positive_scales;                   ///< names that expect_scales() was content with
  std::set<std::string> finite;                            ///< names that expect_finite() was content with
  std::set<std::string> without_nan;                       ///< names that expect_no_nan() was content with
  std::map<std::string, Channels> channels;                ///< by the names of weight, bias and scale
  std::map<std::string, std::pair<int64_t, int64_t>> ids;  ///< the smallest and the largest of a constant's
};

/// One step with its plan. Indices are valid and counts are in the op's range once verify has made one. Where
/// tensors have several rows for each item (TensorInfo::times), a step sees each row as an item, of a batch
/// that is as many times larger; regroup alone sees them as they are.
class StepView {
 public:
  /// With `facts`, each constant is looked through once for all views that are given the same ones; with `packs`, packed
  /// once.
  StepView(const Plan& plan, const Step& step, size_t index, ConstantFacts* facts = nullptr,
           PrepackedWeights* packs = nullptr);

  const Step& step() const { return step_; }
  size_t input_count() const { return step_.inputs.size(); }
  const TensorInfo& input(size_t i = 0) const {
    return rows_.empty() ? plan_.tensors[static_cast<size_t>(step_.inputs[i])] : rows_[i];
  }
  const TensorInfo& output() const {
    return rows_.empty() ? plan_.tensors[static_cast<size_t>(step_.output)] : rows_.back();
  }
  /// Items that the step sees for each item of the batch.
  int64_t times() const { return times_; }
  /// The op's own attributes; verify has seen that the step holds them.
  template <typename Own>
  const Own& attributes() const {
    return step_.get<Own>();
  }
  /// Null for a view that shares none.
  ConstantFacts* facts() const { return facts_; }
  PrepackedWeights* packs() const { return packs_; }
  /// Null when the step has no constant of that role.
  const Constant* constant(const char* role) const;

  /// Throws PlanProblem: "step 3 'layer1.0.conv1' (conv): parts...".
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    problem("step ", index_, " '", step_.name, "' (", to_string(step_.op), "): ", parts...);
  }

  /// The checks that several ops share.
  void expect_type(const char* what, DataType got, DataType expected) const;
  /// f32, bf16 or u8.
  void expect_activation_type(const TensorInfo& tensor) const;
  void expect_image(const char* what, const TensorInfo& tensor) const;
  /// An image, or a volume, whose slices are images of their own.
  void expect_images(const char* what, const TensorInfo& tensor) const;
  void expect_constant(const char* role, DataType type, std::span<const int64_t> shape) const;
  /// f32 of this shape, every number finite and > 0.
  void expect_scales(const char* role, std::span<const int64_t> shape) const;
  /// f32 of this shape, every number finite: other programs choose scales of codes below 0, too.
  void expect_finite(const char* role, std::span<const int64_t> shape) const;
  /// No NaN in this f32 constant, which the step has.
  void expect_no_nan(const char* role) const;
  /// Output of the input's type, scale and zero point.
  void expect_same_numbers(const TensorInfo& input) const;
  /// Input i of the output's type and layout; u8 with a scale of its own that is not too far from the
  /// output's.
  void expect_same_kind(size_t i) const;
  /// An output of f32 where the activation is a curve.
  void expect_curve_on_f32(Activation activation) const;
  /// Input i f32 of layout plain with at least `rank` dimensions.
  void expect_plain_f32(size_t i, size_t rank) const;
  /// An f32 output of layout plain.
  void expect_plain_f32_output() const;
  /// Input i f32 or bf16 of layout plain with at least `rank` dimensions.
  void expect_plain_floats(size_t i, size_t rank) const;
  /// The same, or u8.
  void expect_plain_numbers(size_t i, size_t rank) const;
  /// An output of f32, bf16 or u8 and layout plain.
  void expect_plain_numbers_output() const;
  /// Input i holds ids: i32 or i64 of layout plain.
  void expect_ids(size_t i = 0) const;
  /// The constant of this role holds ids, i32 or i64, all of them in [low, high).
  void expect_ids_between(const char* role, int64_t low, int64_t high) const;
  /// The dimension of input 0, which is of layout plain and has it behind the first one.
  size_t expect_plain_dimension(int64_t dim) const;
  /// What is copied as it is: f32, bf16, u8, i32 or i64.
  void expect_copied(const TensorInfo& tensor) const;
  /// Output of the input's layout.
  void expect_same_layout(const TensorInfo& input) const;

 private:
  const Plan& plan_;
  const Step& step_;
  size_t index_;
  ConstantFacts* facts_;
  PrepackedWeights* packs_;
  int64_t times_ = 1;
  std::vector<TensorInfo> rows_;  ///< inputs and output as the step sees them, where that is not as they are
};

}  // namespace ulp::runtime
