// What the watch keeps of the ops of a sampled step: counts, and the first value that is not finite.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/amp/watch/watch_recorder.h"
#include "ulp/amp/watch/watch_summary.h"

namespace ulp::amp {

class OpWatch final : public OpSink {
 public:
  /// Adds to `ops`, which must outlive it.
  OpWatch(const FormatRange& range, int64_t stride, std::vector<OpStats>& ops)
      : range_(range), stride_(stride), ops_(ops) {}

  /// `scale_exponent`: what the backward pass of the step is scaled by, as a power of two.
  void start_step(int64_t step, int scale_exponent);
  void visit(const OpCall& call) override;

  /// The first op of the step that made a value that is not finite out of finite ones (or a NaN out of
  /// values without one).
  const std::optional<NonFinite>& produced() const { return produced_; }
  /// The first op of the step whose result held such a value at all, its own fault or not. Masks of -inf are
  /// such values, too: alone they say nothing.
  const std::optional<NonFinite>& seen() const { return seen_; }

 private:
  struct Kinds {
    bool infinities = false, nans = false;
  };
  void look(const OpCall& call, const at::Tensor& output, int32_t index);
  void blame(const OpCall& call, const at::Tensor& output, const at::Tensor& block, const OpLocation& place,
             const kernels::ExponentStats& stats);
  Kinds kinds_of_inputs(const OpCall& call, const at::Tensor& output) const;

  const FormatRange& range_;
  int64_t stride_;
  std::vector<OpStats>& ops_;
  std::map<std::string, size_t> index_;  ///< in ops_, by place
  int64_t step_ = 0, samples_ = 0, looked_ = 0;
  int scale_exponent_ = 0;
  std::unordered_map<const void*, Kinds> tainted_;  ///< memory that held values that are not finite
  std::optional<NonFinite> produced_, seen_;
};

}  // namespace ulp::amp
