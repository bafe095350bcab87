// Plain loops over the blocks: runs anywhere, and is what the fast kernels are compared with.
#include "ulp/kernels/conv/widen.h"
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/sparse/block_kernel.h"
#include "ulp/kernels/sparse/interleave.h"

namespace ulp::kernels {
namespace {

/// Four bytes of input times four of weights.
struct Bytes {
  using Sum = uint32_t;  // wraps without undefined behaviour, and equals int32 where that does not overflow
  static constexpr int kInputs = 4;
  static Sum add(Sum sum, const uint8_t* x, const uint8_t* w) {
    for (int b = 0; b < kInputs; ++b) {
      sum += static_cast<uint32_t>(int32_t{x[b]} * static_cast<int8_t>(w[b]));
    }
    return sum;
  }
  static float value(Sum sum, const Finish& f, int64_t channel) {
    return static_cast<float>(static_cast<int32_t>(sum)) * f.multiplier[channel];
  }
};

struct Floats {
  using Sum = float;
  static Sum add(Sum sum, const uint8_t* x, const uint8_t* w) {
    float a, b;
    __builtin_memcpy(&a, x, 4);
    __builtin_memcpy(&b, w, 4);
    return sum + a * b;
  }
  static float value(Sum sum, const Finish&, int64_t) { return sum; }
};

template <typename Numbers>
void row(const BlockTileArgs& t, int64_t m) {
  const TileArgs& out = t.out;
  const Finish& f = *out.finish;
  typename Numbers::Sum sums[kBlockOutputs];
  __builtin_memcpy(sums, static_cast<const uint8_t*>(f.bias) + out.channel * 4, sizeof(sums));
  for (int64_t i = t.begin[0]; i < t.begin[1]; ++i) {
    const uint8_t* x = t.a + m * t.a_step + int64_t{t.index[i]} * 4;
    const uint8_t* block = t.values + i * kBlockOutputs * 4;
    for (int o = 0; o < kBlockOutputs; ++o) sums[o] = Numbers::add(sums[o], x, block + o * 4);
  }
  const int64_t count = out.channels < kBlockOutputs ? out.channels : kBlockOutputs;
  for (int64_t o = 0; o < count; ++o) {
    finish_store(f, Numbers::value(sums[o], f, out.channel + o), out.residual, out.y, m * out.y_step + o);
  }
  if (f.curve != Activation::none && f.output == DataType::f32) {
    float* y = static_cast<float*>(out.y) + m * out.y_step;
    apply_curve(f.curve, y, y, count);
  }
}

template <typename Numbers, int M>
void rows(const BlockTileArgs& t) {
  for (int64_t m = 0; m < M; ++m) row<Numbers>(t, m);
}

}  // namespace

// Rows apart alone.
// clang-format off
#define ULP_TABLE(Numbers) {{nullptr, rows<Numbers, 1>, rows<Numbers, 2>, rows<Numbers, 3>, rows<Numbers, 4>}, {}, {}}
const BlockKernels kBlocksU8Portable = {"s8_16x4_portable", DataType::u8, DataType::u8, 4, 1, {kRowsApart, 0, 0},
                                        ULP_TABLE(Bytes), nullptr, interleave_rows};
const BlockKernels kBlocksF32Portable = {"f32_16x1_portable", DataType::f32, DataType::f32, 1, 1, {kRowsApart, 0, 0},
                                         ULP_TABLE(Floats), nullptr, interleave_rows};
const BlockKernels kBlocksBf16Portable = {"bf16_16x1_portable", DataType::bf16, DataType::f32, 1, 1, {kRowsApart, 0, 0},
                                          ULP_TABLE(Floats), copy_bf16_to_f32, interleave_rows};
// clang-format on

}  // namespace ulp::kernels
