#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/binary/nibble_body.h"

namespace ulp::kernels {
namespace {

struct Nibbles512 {
  using Floats = Vec512;
  using I = __m512i;
  static constexpr int64_t kBytes = 64;
  static constexpr int64_t kOutputs = 32;
  static I zero() { return _mm512_setzero_si512(); }
  static I load(const void* p) { return _mm512_load_si512(p); }
  static I load_table(const uint8_t* p) {
    return _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I look_up(I table, I nibbles) { return _mm512_shuffle_epi8(table, nibbles); }
  static I add(I a, I b) {
    I sum = _mm512_add_epi8(a, b);
    __asm__("" : "+v"(sum));  // or GCC adds the counts of several steps first, and spills them all
    return sum;
  }
  static void add_half(int32_t* counts, __m256i v, bool first) {
    const __m256i words = _mm256_add_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)),
                                           _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)));
    const I wide = _mm512_cvtepu16_epi32(words);
    _mm512_store_si512(counts, first ? wide : _mm512_add_epi32(_mm512_load_si512(counts), wide));
  }
  static void add_bytes(int32_t* counts, I v, bool first) {
    add_half(counts, _mm512_castsi512_si256(v), first);
    add_half(counts + kPanelOutputs, _mm512_extracti64x4_epi64(v, 1), first);
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    const I count = _mm512_loadu_si512(counts);
    const I dot = _mm512_sub_epi32(_mm512_loadu_si512(start), _mm512_add_epi32(count, count));
    return _mm512_cmplt_epi32_mask(dot, _mm512_loadu_si512(threshold));
  }
};

}  // namespace

static_assert(Nibbles512::kOutputs <= kMostPanelOutputs);
const BinaryKernels kBinaryAvx512 = {
    "avx512",
    false,
    Nibbles512::kOutputs,
    {8, 4, 2},
    {{ULP_NIBBLES_8(Nibbles512, 1)}, {ULP_NIBBLES_4(Nibbles512, 2)}, {ULP_NIBBLES_2(Nibbles512, 4)}}};

}  // namespace ulp::kernels
