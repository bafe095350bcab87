#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/binary/nibble_body.h"

namespace ulp::kernels {
namespace {

struct Nibbles256 {
  using Floats = Vec256;
  using I = __m256i;
  static constexpr int64_t kBytes = 32;
  static constexpr int64_t kOutputs = 16;
  static I zero() { return _mm256_setzero_si256(); }
  static I load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
  static I load_table(const uint8_t* p) { return load(p); }
  static I look_up(I table, I nibbles) { return _mm256_shuffle_epi8(table, nibbles); }
  static I add(I a, I b) {
    I sum = _mm256_add_epi8(a, b);
    __asm__("" : "+v"(sum));  // or GCC adds the counts of several steps first, and spills them all
    return sum;
  }
  static void add_bytes(int32_t* counts, I v, bool first) {
    const I words = _mm256_add_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)),
                                     _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)));
    const I low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(words));
    const I high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1));
    I* to = reinterpret_cast<I*>(counts);
    to[0] = first ? low : _mm256_add_epi32(to[0], low);
    to[1] = first ? high : _mm256_add_epi32(to[1], high);
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    const auto eight = [&](int i) {
      const I count = _mm256_loadu_si256(reinterpret_cast<const I*>(counts + i));
      const I dot = _mm256_sub_epi32(_mm256_loadu_si256(reinterpret_cast<const I*>(start + i)),
                                     _mm256_add_epi32(count, count));
      const I least = _mm256_loadu_si256(reinterpret_cast<const I*>(threshold + i));
      return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(least, dot))));
    };
    return eight(0) | eight(8) << 8;
  }
};

}  // namespace

const BinaryKernels kBinaryAvx2 = {
    "avx2",
    false,
    Nibbles256::kOutputs,
    {8, 4, 2},
    {{ULP_NIBBLES_8(Nibbles256, 1)}, {ULP_NIBBLES_4(Nibbles256, 2)}, {ULP_NIBBLES_2(Nibbles256, 4)}}};

}  // namespace ulp::kernels
