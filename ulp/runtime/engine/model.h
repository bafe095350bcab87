// What all callers of one loaded engine share: the programs with their packed constants, and the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/engine/prepacker.h"
#include "ulp/runtime/engine/program.h"
#include "ulp/runtime/plan/plan_specializer.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// The program for one setting of the free dimensions.
struct SizedProgram {
  SizedProgram(const VerifiedPlan& plan, Prepacker& preparer, int64_t rows);

  Program program;
  int64_t rows = 0;       ///< that a run adds to what the context keeps
  int64_t largest_slice;  ///< items whose intermediates fit a worker's cache
};

class Model {
 public:
  Model(const VerifiedPlan& plan, const EngineOptions& options);

  kernels::Isa isa() const { return isa_; }
  const BatchRange& batch_range() const { return batch_range_; }
  /// Dimensions beside the batch that each context sets.
  const std::vector<DynamicDimension>& free() const { return free_; }
  /// The free dimension along which runs continue each other; its name is empty where none do.
  const std::string& decoding_dimension() const { return continued_; }
  /// Its largest size, which all runs together may take; 0 where none continue.
  int64_t longest() const { return longest_; }
  /// As Engine::sizes_for().
  std::map<std::string, int64_t> sizes_for(std::span<const std::vector<int64_t>> shapes) const;
  /// The program at these sizes, one for each free dimension: made at their first use and kept while it is among the last
  /// ones used. For any number of threads. Throws ulp::Error for sizes that the plan does not allow.
  std::shared_ptr<const SizedProgram> at(const std::vector<int64_t>& sizes) const;
  size_t constant_bytes() const { return constant_bytes_; }
  /// The most bytes that one context may take.
  size_t arena_limit() const { return arena_limit_; }

 private:
  struct Made {
    std::vector<int64_t> sizes;
    std::shared_ptr<const SizedProgram> program;
  };
  /// A dimension of an input that is a free one.
  struct Place {
    size_t free = 0, input = 0, dim = 0;
  };
  void find_places(const Plan& plan);
  /// Throws ulp::Error for steps that keep rows where no run continues another.
  void expect_continued(const SizedProgram& made) const;
  std::shared_ptr<const SizedProgram> make(const std::vector<int64_t>& sizes) const;

  kernels::Isa isa_;
  size_t arena_limit_;
  BatchRange batch_range_;
  std::vector<DynamicDimension> free_;
  std::string continued_;
  int64_t longest_ = 0;
  std::vector<Place> places_;
  std::vector<TensorInfo> inputs_;  ///< at the largest sizes
  size_t constant_bytes_ = 0;
  std::shared_ptr<TimingCache> measured_;
  std::unique_ptr<const Plan> plan_;  ///< with free dimensions: what programs are made from
  std::unique_ptr<const PlanSpecializer> family_;
  mutable std::mutex lock_;  ///< of all that follows
  mutable Prepacker preparer_;
  mutable ConstantFacts facts_;
  mutable std::list<Made> made_;  ///< the last one used first
};

/// Throws ulp::Error for a batch that no memory holds; products of smaller ones do not overflow.
void check_batch(const Program& program, int64_t batch);

/// Batches are cut into slices of at least this many items: weights are read once per slice.
inline constexpr int64_t kSmallestSlice = 4;

}  // namespace ulp::runtime
