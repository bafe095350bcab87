// A plan made ready for one machine: every step's kernel prepared, every tensor placed. It computes any
// number of items in memory that the caller provides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/runtime/engine/context.h"
#include "ulp/runtime/engine/storage.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/verified_plan.h"

namespace ulp::runtime {

class Prepacker;

/// Memory that one run computes in: room for `capacity` items, then scratch.
struct Region {
  std::byte* base = nullptr;
  int64_t capacity = 0;
};

/// What the context keeps between runs.
struct KeptRows {
  std::byte* data = nullptr;  ///< kept_bytes() for each of `items` items
  int64_t items = 0;
  int64_t position = 0;
};

/// The caller's buffers, from item `first` on, `count` items.
struct Items {
  std::span<const void* const> in;
  std::span<void* const> out;
  int64_t first = 0, count = 0;
  FaultSlot* faults = nullptr;  ///< of the run
  KeptRows kept = {};
};

class Program {
 public:
  /// PrepackedWeights the constants of a plan without free dimensions, which is not read afterwards. Throws
  /// ulp::Error where they would take more than the preparer's budget.
  Program(const VerifiedPlan& verified, Prepacker& preparer);

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  size_t steps() const { return steps_.size(); }
  /// The first dimension of every tensor is the batch and not its only one, and no step looks at the whole
  /// batch, so that items are independent of each other.
  bool items_are_independent() const { return independent_; }
  /// Throws ulp::Error naming the step for an id outside its table.
  void check_ids(const Items& items) const;
  /// After a run: throws ulp::Error naming the step where one met ids that it could not look up. The outputs
  /// hold no result then.
  void check_faults(const FaultSlot& faults) const;
  /// Bytes that a context keeps between runs for each item.
  size_t kept_bytes() const { return kept_bytes_; }
  /// Some step continues earlier runs.
  bool keeps_rows() const { return last_position_ < std::numeric_limits<int64_t>::max(); }
  /// The largest position at which a run may begin.
  int64_t last_position() const { return last_position_; }
  /// Bytes of an item's intermediates, or of its largest tensor if that is more.
  size_t bytes_per_item() const;
  /// Bytes of a region for so many items whose steps are spread over `workers`.
  size_t region_bytes(int64_t items, int workers) const;

  /// Computes all steps for `items` in `region`, which has room for them. Neither allocates nor throws.
  void run(const Region& region, const Items& items, const Parallel& parallel) const;
  void run_step(size_t step, const Region& region, const Items& items, const Parallel& parallel) const;
  /// For profiles of so many items; the time is left at 0.
  StepProfile describe(size_t step, int64_t items) const;

 private:
  /// Where a tensor is: in a caller's buffer or at an offset of the region that grows with the capacity.
  struct Place {
    Storage::Owner owner = Storage::Owner::arena;
    size_t index = 0;
    size_t offset = 0;
  };
  struct PreparedStep {
    std::shared_ptr<const Runner> runner;
    std::string name;
    Op op = Op::relu;
    Attributes attributes;
    std::vector<int32_t> inputs;
    int32_t output = -1;
    bool alias = false;                  ///< whose output is its input's memory: nothing to do
    StepWork one{}, two{};               ///< what one item and two cost; more follow from both
    double constant_bytes = 0;           ///< of all its constants
    size_t kept_at = 0, kept_bytes = 0;  ///< of one item
    int64_t times = 1;                   ///< items of the step for each item of the batch
    bool done_later = false;             ///< by the last step of its block
  };

  /// The range of an input's ids.
  struct Table {
    size_t input = 0;
    int64_t low = 0, high = 0;
    std::string step;
  };

  /// The blocks of the plan that run as one, with their runners.
  struct Blocks {
    std::vector<StepRange> ranges;
    std::vector<std::shared_ptr<const Runner>> of_step;  ///< null for a step that runs by itself
  };
  static Blocks prepare_blocks(const Plan& plan, Prepacker& preparer);
  /// Gives the work of these steps to the last of them.
  void join(const StepRange& block);
  StepWork work_of(size_t step, int64_t items) const;
  void place_tensors(const StoragePlan& storage);
  void add_kept(const Kept& kept);
  void add_table(const StepView& view, const std::vector<int32_t>& plan_inputs);
  std::byte* address(int32_t tensor, const Region& region, const Items& items) const;

  std::vector<TensorInfo> tensors_, inputs_, outputs_;
  std::vector<PreparedStep> steps_;
  std::vector<Place> places_;  // one per tensor
  std::vector<Table> tables_;
  size_t arena_per_item_ = 0;    // offsets and this scale with the capacity
  size_t largest_per_item_ = 0;  // of any tensor
  bool independent_ = true;
  size_t kept_bytes_ = 0;
  int64_t last_position_ = std::numeric_limits<int64_t>::max();
};

/// "f32 [batch, 3, 32, 32]"
std::string type_and_shape(const TensorInfo& tensor);

}  // namespace ulp::runtime
