#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/binary/word_body.h"

namespace ulp::kernels {
namespace {

struct Words512 {
  using Floats = Vec512;
  using I = __m512i;
  static I zero() { return _mm512_setzero_si512(); }
  static I load(const void* p) { return _mm512_load_si512(p); }
  static I broadcast(const uint8_t* p) {
    long long word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm512_set1_epi64(word);
  }
  static I count(I a, I b) { return _mm512_popcnt_epi64(_mm512_xor_si512(a, b)); }
  static I add(I a, I b) { return _mm512_add_epi64(a, b); }
  static void store_low(int32_t* to, I v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(v));
  }
  static unsigned below(const int32_t* start, const int32_t* counts, const int32_t* threshold) {
    const I count = _mm512_loadu_si512(counts);
    const I dot = _mm512_sub_epi32(_mm512_loadu_si512(start), _mm512_add_epi32(count, count));
    return _mm512_cmplt_epi32_mask(dot, _mm512_loadu_si512(threshold));
  }
};

}  // namespace

const BinaryKernels kBinaryAvx512Vpopcntdq = {
    "avx512_vpopcntdq", true, kPanelOutputs, {8, 0, 0}, ULP_WORDS(Words512)};

}  // namespace ulp::kernels
