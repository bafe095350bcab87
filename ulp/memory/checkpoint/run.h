// One forward pass: what its segments share, and the packing of what stays.
#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "ulp/memory/checkpoint/layout.h"
#include "ulp/memory/saved/modes.h"
#include "ulp/memory/saved/saved_part.h"

namespace ulp::memory {

/// Made at the beginning of a forward pass; lives as long as its records.
class Run {
 public:
  Run(std::shared_ptr<const Layout> layout, const graph::Program::Frame& frame);

  const std::shared_ptr<const Layout> layout;
  const std::vector<int64_t> sizes;
  const bool training;
  const AutocastState autocast;
  std::vector<char> requires_grad;  ///< of each slot that a segment reads from outside, or keeps

  /// The source that holds a value, one for all segments. Where the caller of the graph has a SaveScope, as
  /// its handler packs it.
  std::shared_ptr<Source> hold(int32_t slot, const at::Tensor& tensor);
  /// A source of what a step saved beside values; packed at once.
  std::shared_ptr<Source> hold_inner(size_t step, const at::Tensor& tensor);
  /// The part stands for a value of which the rule is all that is asked.
  void note_mask(std::weak_ptr<SavedPart> part, int32_t slot, const MaskRule& rule);
  /// PrepackedWeights what is held and read for the last time at `step` or before.
  void settle(size_t step);

 private:
  struct Waiting {
    std::weak_ptr<HeldSource> source;
    int32_t slot;
  };
  struct Mask {
    std::weak_ptr<SavedPart> part;
    int32_t slot;
    MaskRule rule;
  };
  bool is_settled(int32_t slot, size_t step) const {
    return layout->last_reader[static_cast<size_t>(slot)] <= step;
  }
  void settle_masks(size_t step);
  bool asks_for_range_only(const Mask& mask) const;
  void pack(HeldSource& source, std::shared_ptr<Packed> packed);
  SaveHandler* outer_;                                      ///< lives as long as the forward pass
  std::vector<std::weak_ptr<Source>> held_;                 ///< by slot
  std::unordered_set<const c10::StorageImpl*> parameters_;  ///< and buffers: views of them are not packed
  std::vector<Waiting> waiting_;
  std::vector<Mask> masks_;
  std::shared_ptr<PackedBatch> batch_;
};

}  // namespace ulp::memory
