// The fake-quantization loops. Included once by a file per instruction set, which names its table with
// ULP_FAKE_QUANT_OPS; everything here has internal linkage.
#include <cstdint>

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/training/fake_quant_ops.h"
#if defined(__AVX512F__)
#include "ulp/kernels/isa/vec512.h"
#elif defined(__AVX2__)
#include "ulp/kernels/isa/vec256.h"
#endif

namespace ulp::kernels {
namespace {

#if defined(__AVX512F__)
using Vec = Vec512;
inline uint32_t equal_bits(Vec::F a, Vec::F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
#elif defined(__AVX2__)
using Vec = Vec256;
inline uint32_t equal_bits(Vec::F a, Vec::F b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
#else
/// One lane, with the names and the NaN rules of the others.
struct Vec {
  using F = float;
  static constexpr int kLanes = 1;
  static F set1(float v) { return v; }
  static F mul(F a, F b) { return a * b; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F load_as_float(DataType type, const void* data, int64_t i, int64_t) {
    return kernels::load_as_float(type, data, i);
  }
  static void store_f32(void* data, int64_t i, int64_t, F v) { static_cast<float*>(data)[i] = v; }
  static void store_bf16(void* data, int64_t i, int64_t, F v) {
    static_cast<uint16_t*>(data)[i] = float_to_bf16(v);
  }
};
inline uint32_t equal_bits(float a, float b) {
  return a == b ? 1 : 0;
}
#endif

/// The constants of one channel in every lane.
struct Channel {
  Vec::F inverse, scale, low, high, below, above, magic;
  Channel(const FakeQuant& how, int64_t channel) {
    const float s = how.scale[channel], z = how.zero_point[channel];
    inverse = Vec::set1(1.0F / s);
    scale = Vec::set1(s);
    low = Vec::set1(how.qmin - z);
    high = Vec::set1(how.qmax - z);
    below = Vec::set1(how.qmin - z - 1);
    above = Vec::set1(how.qmax - z + 1);
    magic = Vec::set1(12582912.0F);  // see round_even in float_bits.h
  }
};

/// The n <= kLanes elements from i on; their bits, if wanted. Rounding moves a value by at most half a step,
/// so what is one step outside stays outside: cutting it there first keeps the sum with `magic` exact.
template <DataType kType, bool kMask>
inline __attribute__((always_inline)) uint64_t lanes(const Channel& c, const void* x, int64_t i, int64_t n,
                                                     void* y) {
  Vec::F v = Vec::mul(Vec::load_as_float(kType, x, i, n), c.inverse);
  v = Vec::min(Vec::max(v, c.below), c.above);
  const Vec::F rounded = Vec::sub(Vec::add(v, c.magic), c.magic);
  const Vec::F code = Vec::min(Vec::max(rounded, c.low), c.high);
  const Vec::F value = Vec::mul(code, c.scale);
  if constexpr (kType == DataType::f32) Vec::store_f32(y, i, n, value);
  if constexpr (kType == DataType::bf16) Vec::store_bf16(y, i, n, value);
  return kMask ? equal_bits(rounded, code) : 0;
}

/// Puts runs of bits behind each other.
class BitWriter {
 public:
  explicit BitWriter(uint64_t* words) : words_(words) {}
  /// The lowest n bits, 1 <= n <= 64; those above are 0.
  void append(uint64_t bits, int64_t n) {
    open_ |= bits << filled_;
    if (filled_ + n >= kMaskBits) {
      *words_++ = open_;
      open_ = filled_ == 0 ? 0 : bits >> (kMaskBits - filled_);
      filled_ -= kMaskBits;
    }
    filled_ += n;
  }
  void finish() {
    if (filled_ > 0) *words_ = open_;
  }

 private:
  uint64_t* words_;
  uint64_t open_ = 0;
  int64_t filled_ = 0;
};

template <DataType kType, bool kMask>
void quantize_run(const Channel& channel, const void* x, int64_t begin, int64_t end, void* y,
                  BitWriter& bits) {
  const Channel c = channel;
  int64_t i = begin;
  for (; i + kMaskBits <= end; i += kMaskBits) {
    uint64_t word = 0;
#pragma GCC unroll 8
    for (int k = 0; k < kMaskBits; k += Vec::kLanes)
      word |= lanes<kType, kMask>(c, x, i + k, Vec::kLanes, y) << k;
    if constexpr (kMask) bits.append(word, kMaskBits);
  }
  for (; i < end; i += Vec::kLanes) {
    const int64_t n = end - i < Vec::kLanes ? end - i : Vec::kLanes;
    const uint64_t word = lanes<kType, kMask>(c, x, i, n, y);
    if constexpr (kMask) bits.append(word & ((uint64_t{1} << n) - 1), n);
  }
}

template <DataType kType, bool kMask>
void quantize(const FakeQuant& how, const void* x, int64_t begin, int64_t end, void* y, uint64_t* inside) {
  BitWriter bits(kMask ? inside + begin / kMaskBits : nullptr);
  if (how.channels == 1) {
    quantize_run<kType, kMask>(Channel(how, 0), x, begin, end, y, bits);
  } else {
    int64_t channel = begin / how.inner % how.channels;
    for (int64_t i = begin; i < end;) {
      const int64_t run_end = (i / how.inner + 1) * how.inner;
      const int64_t stop = run_end < end ? run_end : end;
      quantize_run<kType, kMask>(Channel(how, channel), x, i, stop, y, bits);
      channel = channel + 1 == how.channels ? 0 : channel + 1;
      i = stop;
    }
  }
  if constexpr (kMask) bits.finish();
}

template <typename Word>
struct Powers {
  static constexpr int kBits = 8 * sizeof(Word);
  Word of_two[kBits];
  constexpr Powers() : of_two() {
    for (int i = 0; i < kBits; ++i) of_two[i] = static_cast<Word>(Word{1} << i);
  }
};

/// As many elements at a time as one of them has bits, so that a word of bits meets one power of two a lane.
template <typename Word>
void keep(const uint64_t* inside, const void* gradient, int64_t n, void* out) {
  static constexpr Powers<Word> kPowers;
  constexpr int kBits = Powers<Word>::kBits;
  const auto* __restrict from = static_cast<const Word*>(gradient);
  auto* __restrict to = static_cast<Word*>(out);
  for (int64_t begin = 0; begin < n; begin += kBits, from += kBits, to += kBits) {
    const Word bits = static_cast<Word>(inside[begin / kMaskBits] >> (begin % kMaskBits));
    if (begin + kBits <= n) {
      for (int i = 0; i < kBits; ++i) to[i] = (bits & kPowers.of_two[i]) != 0 ? from[i] : Word{0};
    } else {
      for (int i = 0; i < n - begin; ++i) to[i] = (bits & kPowers.of_two[i]) != 0 ? from[i] : Word{0};
    }
  }
}

}  // namespace

const FakeQuantOps ULP_FAKE_QUANT_OPS = {{{quantize<DataType::f32, false>, quantize<DataType::f32, true>},
                                          {quantize<DataType::bf16, false>, quantize<DataType::bf16, true>}},
                                         {keep<uint16_t>, keep<uint32_t>, keep<uint64_t>}};

}  // namespace ulp::kernels
