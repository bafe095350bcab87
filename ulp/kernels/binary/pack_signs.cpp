#include "ulp/kernels/binary/pack_signs.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/binary/sign_kernel.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

using GetSigns = SignFn (*)();
constexpr Variant<GetSigns> kSigns[] = {{Isa::avx512, ULP_ON_X86(pack_signs_avx512)},
                                        {Isa::avx2, ULP_ON_X86(pack_signs_avx2)},
                                        {Isa::neon, ULP_ON_ARM(pack_signs_neon)},
                                        {Isa::portable, pack_signs_portable}};

}  // namespace

void pack_signs(const SignRows& signs, int64_t rows, const float* x, uint8_t* bits, Isa isa,
                const Parallel& parallel) {
  if (signs.channels < 1) fail("kernels.pack_signs", "expected channels, got ", signs.channels);
  if (rows < 1) return;
  const SignFn pack = first_admitted(kSigns, isa)();
  const int64_t bytes = bit_bytes(signs.channels);
  if (signs.threshold == nullptr && signs.flip == nullptr && signs.channels % 8 == 0) {
    // All rows are one.
    split(rows * bytes, parallel, [&](int64_t first, int64_t count) {
      pack({.x = x + first * 8,
            .bits = bits + first,
            .rows = 1,
            .channels = count * 8,
            .threshold = nullptr,
            .flip = nullptr});
    });
    return;
  }
  const int64_t each = std::max<int64_t>(1, kWorthAThread / signs.channels);
  worth_sharing(rows * signs.channels, parallel).run((rows + each - 1) / each, [&](int64_t task, int) {
    const int64_t first = task * each;
    pack({.x = x + first * signs.channels,
          .bits = bits + first * bytes,
          .rows = std::min(each, rows - first),
          .channels = signs.channels,
          .threshold = signs.threshold,
          .flip = signs.flip});
  });
}

}  // namespace ulp::kernels
