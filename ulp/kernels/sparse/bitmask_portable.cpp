// Plain loops over the bits of the masks: runs anywhere, and is what the fast kernel is compared with.
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/sparse/bitmask_kernel.h"

namespace ulp::kernels {
namespace {

void row(const BitmaskTileArgs& t, int64_t m) {
  const TileArgs& out = t.out;
  const Finish& f = *out.finish;
  uint32_t
      sums[kMaskOutputs];  // wrap without undefined behaviour, and equal int32 where that does not overflow
  __builtin_memcpy(sums, static_cast<const uint8_t*>(f.bias) + out.channel * 4, sizeof(sums));
  const int8_t* value = t.values;
  for (int64_t quad = 0; quad < t.quads; ++quad) {
    const uint8_t* x = t.a + m * t.a_step + quad * kMaskInputs;
    for (uint64_t left = t.masks[quad]; left != 0; left &= left - 1) {
      const int bit = __builtin_ctzll(left);
      sums[bit / kMaskInputs] += static_cast<uint32_t>(int32_t{x[bit % kMaskInputs]} * *value++);
    }
  }
  const int64_t count = out.channels < kMaskOutputs ? out.channels : kMaskOutputs;
  for (int64_t o = 0; o < count; ++o) {
    const float v = static_cast<float>(static_cast<int32_t>(sums[o])) * f.multiplier[out.channel + o];
    finish_store(f, v, out.residual, out.y, m * out.y_step + o);
  }
  if (f.curve != Activation::none && f.output == DataType::f32) {
    float* y = static_cast<float*>(out.y) + m * out.y_step;
    apply_curve(f.curve, y, y, count);
  }
}

template <int M>
void rows(const BitmaskTileArgs& t) {
  for (int64_t m = 0; m < M; ++m) row(t, m);
}

}  // namespace

const BitmaskKernels kBitmaskPortable = {"s8_bitmask_portable",
                                         {nullptr, rows<1>, rows<2>, rows<3>, rows<4>}};

}  // namespace ulp::kernels
