// The table of fake-quantization loops that each instruction set fills in. Plain data, see float_bits.h for
// why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// How a buffer is fake-quantized: element i belongs to channel i / inner % channels.
struct FakeQuant {
  const float* scale = nullptr;       ///< one a channel, positive
  const float* zero_point = nullptr;  ///< one a channel, whole numbers of a magnitude up to 2^20
  int64_t channels = 1;
  int64_t inner = 1;         ///< neighbours of one channel; with one channel any number
  float qmin = 0, qmax = 0;  ///< whole numbers of a magnitude up to 2^20
};

/// Elements of a task come in multiples of this: one word of the mask.
constexpr int64_t kMaskBits = 64;

struct FakeQuantOps {
  /// Elements [begin, end) of x, begin a multiple of kMaskBits; y and inside are those of the whole buffer.
  /// [f32, bf16][without, with mask].
  void (*quantize[2][2])(const FakeQuant& how, const void* x, int64_t begin, int64_t end, void* y,
                         uint64_t* inside);
  /// The first n elements of 2, 4 and 8 bytes.
  void (*keep[3])(const uint64_t* inside, const void* gradient, int64_t n, void* out);
};

extern const FakeQuantOps kFakeQuantOpsPortable, kFakeQuantOpsAvx2, kFakeQuantOpsAvx512;

}  // namespace ulp::kernels
