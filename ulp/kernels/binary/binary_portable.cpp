// Plain words: runs anywhere.
#include "ulp/kernels/binary/one_lane.h"
#include "ulp/kernels/binary/word_body.h"

namespace ulp::kernels {
namespace {

struct Words {
  using Floats = OneLane;
  struct I {
    uint64_t of[8];
  };
  static I zero() { return {}; }
  static I load(const void* p) {
    I v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  static I broadcast(const uint8_t* p) {
    uint64_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return {{word, word, word, word, word, word, word, word}};
  }
  static I count(const I& a, const I& b) {
    I v;
    for (int i = 0; i < 8; ++i) {
      // Sums of neighbours, in 2, 4 and 8 bits each; the product adds up the bytes.
      uint64_t x = a.of[i] ^ b.of[i];
      x -= x >> 1 & 0x5555555555555555U;
      x = (x & 0x3333333333333333U) + (x >> 2 & 0x3333333333333333U);
      x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fU;
      v.of[i] = x * 0x0101010101010101U >> 56;
    }
    return v;
  }
  static I add(const I& a, const I& b) {
    I v;
    for (int i = 0; i < 8; ++i) v.of[i] = a.of[i] + b.of[i];
    return v;
  }
  static void store_low(int32_t* to, const I& v) {
    for (int i = 0; i < 8; ++i) to[i] = static_cast<int32_t>(v.of[i]);
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    unsigned bits = 0;
    for (int i = 0; i < kPanelOutputs; ++i)
      bits |= static_cast<unsigned>(start[i] - 2 * counts[i] < threshold[i]) << i;
    return bits;
  }
};

}  // namespace

const BinaryKernels kBinaryPortable = {"portable", true, kPanelOutputs, {8, 0, 0}, ULP_WORDS(Words)};

}  // namespace ulp::kernels
