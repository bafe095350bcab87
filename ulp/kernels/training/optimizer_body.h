// The optimizer loops, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_OPTIMIZER_OPS and, where it has a faster one, its
// formats::random_bits_of_group with ULP_RANDOM_BITS_OF_GROUP, and which gives the bytes of a vector;
// everything here has internal linkage.
#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/common/half.h"
#include "ulp/kernels/training/moment_blocks.h"
#include "ulp/kernels/training/optimizer_ops.h"

#ifndef ULP_RANDOM_BITS_OF_GROUP
#define ULP_RANDOM_BITS_OF_GROUP formats::random_bits_of_group
#endif

namespace ulp::kernels {
namespace {

constexpr int64_t kBlock = 256;  // elements at a time, small enough for the first cache; a multiple of 128
constexpr int kPartials = 16;    // of a sum; fixed, so that the order is the same on every machine
constexpr int kWidened = 64;     // gradients made fp32 at a time; a multiple of kPartials

struct GradF32 {
  using T = float;
  static float load(T v) { return v; }
};
struct GradBf16 {
  using T = uint16_t;
  static float load(T v) { return bf16_to_float(v); }
};
struct GradF16 {
  using T = uint16_t;
  static float load(T v) { return half_to_float(v); }
};

/// Squares of floats are exact in double: fused or not, the bits are the same.
inline double add_square(double sum, float v) {
  const double wide = static_cast<double>(v);
#ifdef __FMA__
  return __builtin_fma(wide, wide, sum);
#else
  return sum + wide * wide;
#endif
}

/// The order of the additions alone decides the bits.
template <typename Grad>
double square_sum(const void* gradient, int64_t n) {
  const auto* __restrict g = static_cast<const typename Grad::T*>(gradient);
  double sums[kPartials] = {};
  int64_t i = 0;
  for (; i + kWidened <= n; i += kWidened) {
    float wide[kWidened];  // on its own: GCC does not vectorize 16 bits to double in one loop well
    const float* from = wide;
    if constexpr (sizeof(*g) == sizeof(*from)) {
      from = g + i;
    } else {
      for (int l = 0; l < kWidened; ++l) wide[l] = Grad::load(g[i + l]);
    }
    for (int j = 0; j < kWidened; j += kPartials) {
      for (int l = 0; l < kPartials; ++l) sums[l] = add_square(sums[l], from[j + l]);
    }
  }
  for (; i + kPartials <= n; i += kPartials) {
    for (int l = 0; l < kPartials; ++l) sums[l] = add_square(sums[l], Grad::load(g[i + l]));
  }
  for (int l = 0; i + l < n; ++l) sums[l] = add_square(sums[l], Grad::load(g[i + l]));
  for (int width = kPartials / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) sums[l] += sums[l + width];
  }
  return sums[0];
}

/// The bf16 above or below, from 16 random bits.
inline uint16_t float_to_bf16_stochastic(float v, uint32_t random) {
  const uint32_t own = float_to_bits(v);
  const uint32_t quiet = own | 0x400000U;
  // Infinities have no bits below the sixteenth, so that nothing is carried into them.
  const uint32_t rounded = own + random;
  return static_cast<uint16_t>((v != v ? quiet : rounded) >> 16);
}

/// How a bf16 parameter and the 16 bits kept beside it make a weight, and how a weight is taken apart again.
struct Bf16Split {
  using Rest = int16_t;
  static float join(uint16_t p, Rest low) {
    return bits_to_float((uint32_t{p} << 16) + static_cast<uint32_t>(int32_t{low}));
  }
  static uint32_t bits(float w) {
    const uint32_t own = float_to_bits(w);
    // One NaN for all: others could carry into the sign when they are rounded.
    return (own & 0x7fffffffU) > 0x7f800000U ? 0x7fc00000U : own;
  }
  static uint16_t round(float w) { return static_cast<uint16_t>((bits(w) + 0x8000U) >> 16); }
  static Rest rest(float w, uint16_t) { return static_cast<int16_t>(static_cast<uint16_t>(bits(w))); }
};
struct Bf16Kahan {
  using Rest = uint16_t;
  static float join(uint16_t p, Rest lost) { return bf16_to_float(p) + bf16_to_float(lost); }
  static uint16_t round(float w) { return float_to_bf16(w); }
  static Rest rest(float w, uint16_t p) { return float_to_bf16(w - bf16_to_float(p)); }
};

/// a * b + c in one rounding, at the places where LibTorch's loops have it.
inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

/// A step and what is the same for all its elements.
struct RuleStep : UpdateStep {
  explicit RuleStep(const UpdateStep& step) : UpdateStep(step), reciprocal(1 / step.sqrt_correction2) {}

  /// root / sqrt_correction2 with its one rounding, in a third of a division's time: with a correctly rounded
  /// reciprocal one correction is enough (Markstein 1990). No root is subnormal; an infinite one has no
  /// remainder.
  float corrected(float root) const {
    const float quotient = root * reciprocal;
    const float remainder = fma(-quotient, sqrt_correction2, root);
    return fma(root <= 0x1p100F ? remainder : 0.0F, reciprocal, quotient);
  }

  float reciprocal;
};

/// The rules of UpdateKind: `next` changes the gradient, the weight and the state of one element.
struct Sgd {
  static constexpr bool kFirst = false, kSecond = false;
  static float next(const RuleStep& s, float g, float p, float&, float&) {
    g = s.weight_decay != 0 ? fma(p, s.weight_decay, g) : g;
    return fma(g, s.negative_lr, p);
  }
};
struct SgdMomentum {
  static constexpr bool kFirst = true, kSecond = false;
  static float next(const RuleStep& s, float g, float p, float& m, float&) {
    g = s.weight_decay != 0 ? fma(p, s.weight_decay, g) : g;
    m = s.first_step ? g : fma(g, s.one_minus_dampening, s.momentum * m);
    return fma(s.nesterov ? fma(m, s.momentum, g) : m, s.negative_lr, p);
  }
};
struct AdamW {
  static constexpr bool kFirst = true, kSecond = true;
  static float moments(const RuleStep& s, float g, float p, float& m, float& v) {
    m = fma(g, s.one_minus_beta1, s.beta1 * m);
    v = fma(s.one_minus_beta2 * g, g, s.beta2 * v);
    return p + s.negative_step_size * m / (s.corrected(__builtin_sqrtf(v)) + s.eps);
  }
  static float next(const RuleStep& s, float g, float p, float& m, float& v) {
    return moments(s, g, p * s.decay, m, v);
  }
};
struct Adam : AdamW {
  static float next(const RuleStep& s, float g, float p, float& m, float& v) {
    return moments(s, s.weight_decay != 0 ? fma(p, s.weight_decay, g) : g, p, m, v);
  }
};

/// The random words of the elements [begin, begin + n) of a tensor. Not inlined, as widen() and narrow():
/// every rule would have a copy.
__attribute__((noinline)) void random_words(formats::RandomKey key, int64_t begin, int64_t n,
                                            uint32_t* words) {
  for (int64_t i = 0; i < n; i += formats::kRandomGroup) {
    const auto group = static_cast<uint64_t>((begin + i) / formats::kRandomGroup);
    ULP_RANDOM_BITS_OF_GROUP(key, group, words + i);
  }
}

/// As kernels::random_half() for the elements [begin, begin + n): a block of `random` holds more.
inline void random_halves(formats::RandomKey key, int64_t begin, int64_t n, uint32_t* __restrict random) {
  constexpr int64_t kGroup = formats::kRandomGroup;
  uint32_t words[kGroup];
  for (int64_t i = 0; i < n; i += 2 * kGroup) {
    ULP_RANDOM_BITS_OF_GROUP(key, static_cast<uint64_t>((begin + i) / (2 * kGroup)), words);
    for (int64_t l = 0; l < kGroup; ++l) {
      random[i + l] = words[l] & 0xffffU;
      random[i + kGroup + l] = words[l] >> 16;
    }
  }
}

template <typename Grad>
inline void widen_codes(const void* array, int64_t begin, int64_t n, float* __restrict wide) {
  const auto* __restrict codes = static_cast<const typename Grad::T*>(array) + begin;
  for (int64_t i = 0; i < n; ++i) wide[i] = Grad::load(codes[i]);
}

/// The elements [begin, begin + n) of an array as fp32 numbers: where they are, or in `wide` for 16-bit
/// types.
__attribute__((noinline)) float* widen(void* array, DataType type, int64_t begin, int64_t n, float* wide) {
  if (type == DataType::bf16) {
    widen_codes<GradBf16>(array, begin, n, wide);
    return wide;
  }
  if (type == DataType::f16) {
    widen_codes<GradF16>(array, begin, n, wide);
    return wide;
  }
  return static_cast<float*>(array) + begin;
}

/// Stores a block that widen() put into `wide`; each element takes 16 bits of its word, from bit `shift` on.
__attribute__((noinline)) void narrow(const float* __restrict wide, const uint32_t* __restrict words,
                                      uint32_t shift, int64_t n, uint16_t* __restrict codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = float_to_bf16_stochastic(wide[i], words[i] >> shift & 0xffffU);
}

/// What a WeightStore does with the elements [begin, begin + n), a block: `load` gives their weights as fp32
/// numbers, where they are or in `wide`, and `store` puts the updated ones away, `random` being room for a
/// block.
struct WeightAccess {
  float* (*load)(const UpdateRun& run, int64_t begin, int64_t n, float* __restrict wide);
  void (*store)(const UpdateRun& run, int64_t begin, int64_t n, const float* __restrict weights,
                uint32_t* __restrict random);
};

float* load_parameters(const UpdateRun& run, int64_t begin, int64_t, float* __restrict) {
  return static_cast<float*>(run.parameter) + begin;
}
void leave_in_place(const UpdateRun&, int64_t, int64_t, const float* __restrict, uint32_t* __restrict) {}

float* load_masters(const UpdateRun& run, int64_t begin, int64_t, float* __restrict) {
  return static_cast<float*>(run.master) + begin;
}
/// Writes a block past the caches: lines that are overwritten whole need not be read first. `to` is at the
/// begin of a line.
inline void stream_block(const uint16_t* block, uint16_t* to) {
#ifdef __SSE2__
  for (int64_t i = 0; i < kBlock; i += 8) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(block + i)));
  }
#else
  __builtin_memcpy(to, block, sizeof(uint16_t) * kBlock);
#endif
}
template <uint16_t (*round)(float)>
inline void round_to(const float* __restrict weights, int64_t n, uint16_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = round(weights[i]);
}
template <uint16_t (*round)(float)>
void store_copies(const UpdateRun& run, int64_t begin, int64_t n, const float* __restrict weights,
                  uint32_t* __restrict) {
  auto* parameters = static_cast<uint16_t*>(run.parameter) + begin;
  const bool streams = run.stream_copies && n == kBlock && reinterpret_cast<uintptr_t>(parameters) % 64 == 0;
  alignas(64) uint16_t block[kBlock];
  round_to<round>(weights, n, streams ? block : parameters);
  if (streams) stream_block(block, parameters);
}

template <typename Parts>
float* join_parts(const UpdateRun& run, int64_t begin, int64_t n, float* __restrict wide) {
  const auto* __restrict p = static_cast<const uint16_t*>(run.parameter) + begin;
  const auto* __restrict rest = static_cast<const typename Parts::Rest*>(run.master) + begin;
  for (int64_t i = 0; i < n; ++i) wide[i] = Parts::join(p[i], rest[i]);
  return wide;
}
template <typename Parts>
void store_parts(const UpdateRun& run, int64_t begin, int64_t n, const float* __restrict weights,
                 uint32_t* __restrict) {
  auto* __restrict p = static_cast<uint16_t*>(run.parameter) + begin;
  auto* __restrict rest = static_cast<typename Parts::Rest*>(run.master) + begin;
  for (int64_t i = 0; i < n; ++i) {
    p[i] = Parts::round(weights[i]);
    rest[i] = Parts::rest(weights[i], p[i]);
  }
}

float* load_codes(const UpdateRun& run, int64_t begin, int64_t n, float* __restrict wide) {
  return widen(run.parameter, DataType::bf16, begin, n, wide);
}
void store_stochastically(const UpdateRun& run, int64_t begin, int64_t n, const float* __restrict weights,
                          uint32_t* __restrict random) {
  random_halves(run.random, run.begin + begin, n, random);
  narrow(weights, random, 0, n, static_cast<uint16_t*>(run.parameter) + begin);
}

/// Indexed by WeightStore.
constexpr WeightAccess kWeightAccess[kWeightStores] = {
    {load_parameters, leave_in_place},           {load_masters, store_copies<float_to_bf16>},
    {load_masters, store_copies<float_to_half>}, {join_parts<Bf16Split>, store_parts<Bf16Split>},
    {load_codes, store_stochastically},          {join_parts<Bf16Kahan>, store_parts<Bf16Kahan>},
};

/// The powers of two of a word, so that a comparison of a whole vector tests its bits.
template <typename Word>
struct BitsOf {
  static constexpr int kCount = 8 * sizeof(Word);
  Word of_two[kCount];
  constexpr BitsOf() : of_two() {
    for (int i = 0; i < kCount; ++i) of_two[i] = static_cast<Word>(Word{1} << i);
  }
};

/// now[i] = old[i] where bit i of the mask is 0.
template <typename Word>
inline void put_back(const uint8_t* __restrict mask, const Word* __restrict old, int64_t n,
                     Word* __restrict now) {
  static constexpr BitsOf<Word> kBits;
  int64_t i = 0;
  for (; i + kBits.kCount <= n; i += kBits.kCount) {
    Word bits;
    __builtin_memcpy(&bits, mask + i / 8, sizeof(bits));
    for (int l = 0; l < kBits.kCount; ++l)
      now[i + l] = (bits & kBits.of_two[l]) != 0 ? now[i + l] : old[i + l];
  }
  for (; i < n; ++i) now[i] = (mask[i / 8] >> (i % 8) & 1) != 0 ? now[i] : old[i];
}

alignas(64) constexpr uint32_t kZeros[kBlock] = {};

/// The bits of a block of parameters and masters before its update, for those that a mask holds where they
/// are.
class HeldBlock {
 public:
  void save(const UpdateRun& run, int64_t begin, int64_t n) {
    parameter_.save(run.parameter, run.store == WeightStore::f32 ? 4 : 2, begin, n);
    const bool wide = run.store == WeightStore::bf16_master || run.store == WeightStore::f16_master;
    const bool none = run.store == WeightStore::f32 || run.store == WeightStore::bf16_stochastic;
    master_.save(run.master, none ? 0 : wide ? 4 : 2, begin, n);
  }
  /// And the moments become zero there, but for those in blocks: store_moment() did that.
  void restore(const UpdateRun& run, bool first, bool second) const {
    const uint8_t* mask = run.mask + parameter_.begin / 8;
    parameter_.restore(run.parameter, mask);
    master_.restore(run.master, mask);
    if (moment_block(run.moments) != 0) return;
    const int bytes = run.moments == MomentStore::f32 ? 4 : 2;
    if (first) clear(run.first, bytes, mask);
    if (second) clear(run.second, bytes, mask);
  }

 private:
  struct Part {
    alignas(64) unsigned char old[4 * kBlock];
    int bytes;  // of an element; 0: nothing is held
    int64_t begin, n;
    void save(const void* array, int element_bytes, int64_t from, int64_t count) {
      bytes = element_bytes;
      begin = from;
      n = count;
      if (bytes != 0)
        __builtin_memcpy(old, static_cast<const char*>(array) + from * bytes,
                         static_cast<size_t>(count * bytes));
    }
    void restore(void* array, const uint8_t* mask) const {
      if (bytes == 4)
        put_back(mask, reinterpret_cast<const uint32_t*>(old), n, static_cast<uint32_t*>(array) + begin);
      if (bytes == 2)
        put_back(mask, reinterpret_cast<const uint16_t*>(old), n, static_cast<uint16_t*>(array) + begin);
    }
  };
  void clear(void* moments, int bytes, const uint8_t* mask) const {
    if (bytes == 4) {
      put_back(mask, kZeros, parameter_.n, static_cast<uint32_t*>(moments) + parameter_.begin);
    } else {
      put_back(mask, reinterpret_cast<const uint16_t*>(kZeros), parameter_.n,
               static_cast<uint16_t*>(moments) + parameter_.begin);
    }
  }
  Part parameter_, master_;
};

// Not inlined: a step without masks has the loops that it had.
__attribute__((noinline)) void hold(HeldBlock& held, const UpdateRun& run, int64_t begin, int64_t n) {
  held.save(run, begin, n);
}
__attribute__((noinline)) void let_go(const HeldBlock& held, const UpdateRun& run, bool first, bool second) {
  held.restore(run, first, second);
}

/// The elements [begin, begin + n) of a moment, kSecond or not, as fp32 numbers: where they are, or in
/// `wide`.
template <bool kSecond>
float* load_moment(const UpdateRun& run, int64_t begin, int64_t n, float* wide) {
  void* const moment = kSecond ? run.second : run.first;
  const int64_t block = moment_block(run.moments);
  if (block == 0)
    return widen(moment, run.moments == MomentStore::f32 ? DataType::f32 : DataType::bf16, begin, n, wide);
  const float* absmax = kSecond ? run.second_absmax : run.first_absmax;
  const MomentBlocks& blocks = kMomentBlocks[run.moments == MomentStore::int8 ? 0 : 1][kSecond];
  blocks.load(static_cast<const uint8_t*>(moment) + moment_bytes(run.moments, begin), absmax + begin / block,
              n, wide);
  return wide;
}

/// Puts updated moments away that are not where they belong; held ones in blocks become zero before.
template <bool kSecond>
void store_moment(const UpdateRun& run, int64_t begin, int64_t n, float* wide, const uint32_t* random) {
  void* const moment = kSecond ? run.second : run.first;
  if (run.moments == MomentStore::bf16)
    narrow(wide, random, kSecond ? 0 : 16, n, static_cast<uint16_t*>(moment) + begin);
  const int64_t block = moment_block(run.moments);
  if (block == 0) return;
  if (run.mask != nullptr) put_back(run.mask + begin / 8, kZeros, n, reinterpret_cast<uint32_t*>(wide));
  float* absmax = kSecond ? run.second_absmax : run.first_absmax;
  const MomentBlocks& blocks = kMomentBlocks[run.moments == MomentStore::int8 ? 0 : 1][kSecond];
  blocks.store(wide, n, static_cast<uint8_t*>(moment) + moment_bytes(run.moments, begin),
               absmax + begin / block);
}

template <typename Rule>
void update(const UpdateRun& run) {
  const RuleStep s(*run.step);
  const float inverse_scale = run.inverse_scale, clip = run.clip;
  const WeightAccess& weights = kWeightAccess[static_cast<size_t>(run.store)];
  alignas(64) uint32_t random[kBlock];
  alignas(64) float wide_gradient[kBlock], wide_weight[kBlock], wide_first[kBlock], wide_second[kBlock];
  HeldBlock held;
  for (int64_t begin = 0; begin < run.size; begin += kBlock) {
    const int64_t n = run.size - begin < kBlock ? run.size - begin : kBlock;
    const float* __restrict g =
        widen(const_cast<void*>(run.gradient), run.gradient_type, begin, n, wide_gradient);
    if (run.mask != nullptr) hold(held, run, begin, n);
    float* __restrict w = weights.load(run, begin, n, wide_weight);
    float* __restrict first = nullptr;
    float* __restrict second = nullptr;
    if constexpr (Rule::kFirst) first = load_moment<false>(run, begin, n, wide_first);
    if constexpr (Rule::kSecond) second = load_moment<true>(run, begin, n, wide_second);
    for (int64_t i = 0; i < n; ++i) {
      float m = 0, v = 0;
      if constexpr (Rule::kFirst) m = first[i];
      if constexpr (Rule::kSecond) v = second[i];
      w[i] = Rule::next(s, g[i] * inverse_scale * clip, w[i], m, v);
      if constexpr (Rule::kFirst) first[i] = m;
      if constexpr (Rule::kSecond) second[i] = v;
    }
    weights.store(run, begin, n, w, random);
    if (Rule::kFirst && run.moments == MomentStore::bf16)
      random_words({run.random.seed ^ kMomentSeed, run.random.stream}, run.begin + begin, n, random);
    if constexpr (Rule::kFirst) store_moment<false>(run, begin, n, first, random);
    if constexpr (Rule::kSecond) store_moment<true>(run, begin, n, second, random);
    if (run.mask != nullptr) let_go(held, run, Rule::kFirst, Rule::kSecond);
  }
#ifdef __SSE2__
  _mm_sfence();  // stream_block()'s writes come before whatever says that this is done
#endif
}

}  // namespace

extern const OptimizerOps ULP_OPTIMIZER_OPS;
const OptimizerOps ULP_OPTIMIZER_OPS = {{square_sum<GradF32>, square_sum<GradBf16>, square_sum<GradF16>},
                                        {update<Sgd>, update<SgdMomentum>, update<Adam>, update<AdamW>},
                                        kMomentBlocks};

}  // namespace ulp::kernels
