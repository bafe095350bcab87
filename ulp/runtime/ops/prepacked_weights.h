// What runners make of constants and share between the sizes of a plan with free dimensions: packed weights.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "ulp/runtime/ops/depth_first.h"
#include "ulp/runtime/ops/sparse_weights.h"
#include "ulp/runtime/ops/timing_cache.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// All that a runner is made from, as text: op, attributes, names of constants, types of tensors. Names come
/// with their lengths, so that no two lists read the same. Without `sizes`, what does not change with the
/// free dimensions: an op that has sizes among its attributes is another one at each of them.
std::string use_of(const StepView& view, bool sizes);

/// What is the same for all steps of a plan.
struct PackRules {
  SparseWeights sparse = SparseWeights::never;
  DepthFirst blocks = DepthFirst::never;
  double error_budget = 0;    ///< of f32 layers that may run in bf16, see EngineOptions
  bool sizes_vary = false;    ///< the plan has free dimensions
  size_t constant_bytes = 0;  ///< of the plan
  std::shared_ptr<TimingCache> measured = std::make_shared<TimingCache>();
};

/// By step, and by what is shared of it. Not for several threads at once.
class PrepackedWeights {
 public:
  PrepackedWeights() = default;
  explicit PrepackedWeights(const PackRules& rules) : rules_(rules) {}
  const PackRules& rules() const { return rules_; }
  /// Steps that read this constant keep nothing here: it is another one at each size.
  void leave_out(const std::string& constant) { left_out_.insert(constant); }
  bool keeps(const StepView& view) const {
    return std::ranges::none_of(view.step().constants,
                                [&](const auto& named) { return left_out_.contains(named.second); });
  }
  /// Whether a step like this one has left something here.
  bool has(const StepView& view) const { return made_.contains(use_of(view, false)); }

  template <typename Packed, typename Make>
  std::shared_ptr<const Packed> get(const StepView& view, const std::string& what, const Make& make) {
    std::shared_ptr<const void>& held = made_[use_of(view, false)][what];
    if (!held) held = std::shared_ptr<const Packed>(make());
    return std::static_pointer_cast<const Packed>(held);
  }

 private:
  PackRules rules_;
  std::set<std::string> left_out_;
  std::map<std::string, std::map<std::string, std::shared_ptr<const void>>> made_;
};

/// What `make` gives, a pointer to a Packed that reads nothing of the step that follows free dimensions: made
/// once for all sizes of the plan.
template <typename Packed, typename Make>
std::shared_ptr<const Packed> packed(const StepView& view, const std::string& what, const Make& make) {
  if (view.packs() == nullptr || !view.packs()->keeps(view)) return std::shared_ptr<const Packed>(make());
  return view.packs()->template get<Packed>(view, what, make);
}

}  // namespace ulp::runtime
