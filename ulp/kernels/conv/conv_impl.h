// What the implementations of Conv share; internal to the room.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "ulp/kernels/conv/conv.h"
#include "ulp/kernels/conv/finish.h"

namespace ulp::kernels {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// 64-byte aligned zeroed memory, fixed size.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes);
  uint8_t* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data_;
};

/// Weight `i` of a bf16 layer, which is given in bf16 or in f32.
inline uint16_t bf16_weight(const ConvWeights& weights, int64_t i) {
  return weights.bf16 != nullptr ? weights.bf16[i] : float_to_bf16(weights.f32[i]);
}

/// The constants of the epilogue with the memory they point to.
struct FinishData {
  AlignedBuffer bias, multiplier;
  Finish finish;
};

/// `channels` is the padded number of output channels (the rest is zero). With `fold_zero_point` the integer
/// bias becomes bias - zx * sum(w), for kernels that accumulate x * w instead of (x - zx) * w.
FinishData make_finish(const ConvConfig& config, const ConvWeights& weights, int64_t channels,
                       bool fold_zero_point);

/// The plain C++ implementation; takes every configuration.
std::unique_ptr<Conv> make_reference_conv(const ConvConfig& config, const ConvWeights& weights);

}  // namespace ulp::kernels
