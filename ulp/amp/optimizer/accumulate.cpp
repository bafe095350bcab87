#include "ulp/amp/optimizer/accumulate.h"

#include <ATen/ATen.h>

#include "ulp/base/error.h"

namespace ulp::amp {

GradientAccumulator::GradientAccumulator(int64_t micro_batches) {
  begin(micro_batches);
}

at::Tensor GradientAccumulator::normalize(const at::Tensor& loss) const {
  constexpr const char* kWhere = "amp.GradientAccumulator.normalize";
  if (!loss.defined()) fail(kWhere, "expected a loss, got an undefined tensor");
  if (!loss.is_floating_point()) fail(kWhere, "expected a floating-point loss, got ", loss.dtype());
  return micro_batches_ == 1 ? loss : loss / micro_batches_;
}

void GradientAccumulator::advance() {
  position_ = is_last() ? 0 : position_ + 1;
}

void GradientAccumulator::begin(int64_t micro_batches) {
  constexpr const char* kWhere = "amp.GradientAccumulator";
  if (micro_batches < 1) fail(kWhere, "expected micro_batches >= 1, got ", micro_batches);
  if (!is_first()) {
    fail(kWhere, "expected begin() between two steps, got it after ", position_, " of ", micro_batches_,
         " micro-batches");
  }
  micro_batches_ = micro_batches;
}

}  // namespace ulp::amp
