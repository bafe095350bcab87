// A plan that has passed its checks. Those who trust a plan take one of these, so that each plan is checked
// once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// The most dimensions of a tensor.
inline constexpr size_t kMaxRank = 8;

struct ConstantFacts;

class VerifiedPlan {
 public:
  /// Checks a plan, which must outlive this and stay as it is. Throws ulp::Error as Plan::verify() does.
  static VerifiedPlan check(const Plan& plan);
  /// The same for a plan of its own; constants that `facts` knows are not looked through again.
  static VerifiedPlan check(Plan&& plan, ConstantFacts& facts);
  /// Reads and checks an engine file. Throws FileError as Plan::load() does.
  static VerifiedPlan load(const std::filesystem::path& path);
  static VerifiedPlan load(std::span<const std::byte> file);

  const Plan& operator*() const { return *plan_; }
  const Plan* operator->() const { return plan_.get(); }

 private:
  explicit VerifiedPlan(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  std::shared_ptr<const Plan> plan_;  ///< owns what was loaded, points to what was given
};

}  // namespace ulp::runtime
