// The plain plans that a plan with free dimensions stands for, one for each setting of their sizes.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

class PlanSpecializer {
 public:
  /// `plan` must outlive this and stay as it is.
  explicit PlanSpecializer(const Plan& plan);
  ~PlanSpecializer();

  /// The plan at these sizes, one for each free dimension, without free dimensions of its own and not
  /// verified. Bytes of constants that are used whole are shared. Throws ulp::Error for a size outside its
  /// range and PlanProblem where numbers that follow do not fit the plan.
  Plan at(std::span<const int64_t> sizes) const;

 private:
  const Plan& plan_;
  std::unique_ptr<const nlohmann::json> numbers_;  ///< of the plan, as in its file
};

/// A word of a text, such as the program of a pointwise step, and where it begins.
struct TextWord {
  size_t begin = 0;
  std::string text;
};
ULP_API std::vector<TextWord> words_of(const std::string& text);
/// Whether a word is a whole number.
ULP_API bool is_whole(const std::string& word);

/// The first elements of a constant along each dimension. Throws PlanProblem for sizes that it does not have.
ULP_API Constant corner_of(const std::string& name, const Constant& whole, std::vector<int64_t> shape);

/// Throws PlanProblem unless the free dimensions have names and ranges, and what follows them gives the
/// plan's own numbers at the largest sizes and a plan that passes its checks at the smallest.
void verify_following(const Plan& plan);

}  // namespace ulp::runtime
