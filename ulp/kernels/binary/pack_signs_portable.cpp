// Plain loops: what the fast kernels are compared with.
#include "ulp/kernels/binary/sign_kernel.h"

namespace ulp::kernels {
namespace {

void pack(const SignArgs& s) {
  uint8_t* to = s.bits;
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* x = s.x + r * s.channels;
    int64_t c = 0;
    for (; c + 8 <= s.channels; c += 8) *to++ = sign_byte(s, x, c, 8);
    if (c < s.channels) *to++ = sign_byte(s, x, c, s.channels - c);
  }
}

}  // namespace

SignFn pack_signs_portable() {
  return pack;
}

}  // namespace ulp::kernels
