// The optimizer loops, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_OPTIMIZER_OPS and, where it has a faster one, its
// formats::random_bits_of_group with ULP_RANDOM_BITS_OF_GROUP; everything here has internal linkage.
#include <cstdint>

#include "ulp/kernels/finish.h"
#include "ulp/kernels/half.h"
#include "ulp/kernels/optimizer_ops.h"
#include "ulp/kernels/prefetch.h"

#ifndef ULP_RANDOM_BITS_OF_GROUP
#define ULP_RANDOM_BITS_OF_GROUP formats::random_bits_of_group
#endif

namespace ulp::kernels {
namespace {

constexpr int64_t kBlock = 256;  // elements between two rounds of prefetching; a multiple of 128
constexpr int64_t kPrefetchUpdate = 8192,
                  kPrefetchNorm = 8192;  // bytes ahead; from 512 to 8192 tried on Zen 4
constexpr int kPartials = 16;            // of a sum; fixed, so that the order is the same on every machine
constexpr int kWidened = 64;             // gradients made fp32 at a time; a multiple of kPartials

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

/// Squares of floats are exact in double, so the order of the additions alone decides the bits.
template <typename Grad>
double square_sum(const void* gradient, int64_t n) {
  const auto* __restrict g = static_cast<const typename Grad::T*>(gradient);
  double sums[kPartials] = {};
  int64_t i = 0;
  for (; i + kWidened <= n; i += kWidened) {
    prefetch_lines(reinterpret_cast<const char*>(g + i) + kPrefetchNorm, kWidened * sizeof(*g));
    float wide[kWidened];  // on its own: GCC does not vectorize 16 bits to double in one loop well
    for (int l = 0; l < kWidened; ++l) wide[l] = Grad::load(g[i + l]);
    for (int from = 0; from < kWidened; from += kPartials) {
      for (int l = 0; l < kPartials; ++l) {
        const double v = static_cast<double>(wide[from + l]);
        sums[l] += v * v;
      }
    }
  }
  for (; i + kPartials <= n; i += kPartials) {
    for (int l = 0; l < kPartials; ++l) {
      const double v = static_cast<double>(Grad::load(g[i + l]));
      sums[l] += v * v;
    }
  }
  for (int l = 0; i + l < n; ++l) {
    const double v = static_cast<double>(Grad::load(g[i + l]));
    sums[l] += v * v;
  }
  for (int width = kPartials / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) sums[l] += sums[l + width];
  }
  return sums[0];
}

/// The bf16 above or below, from 16 random bits.
inline uint16_t float_to_bf16_stochastic(float v, uint32_t random) {
  const uint32_t own = float_to_bits(v);
  const uint32_t quiet = own >> 16 | 0x40U;
  // Infinities have no bits below the sixteenth, so that nothing is carried into them.
  const uint32_t rounded = (own + random) >> 16;
  return static_cast<uint16_t>((own & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

/// How a weight is read and written: `Master` and `Parameter` are the types of the two arrays, and unused
/// ones are never touched.
struct StoreF32 {
  using Parameter = float;
  using Master = float;
  static float load(Parameter p, Master) { return p; }
  static Parameter round(float w, uint32_t) { return w; }
  static Master rest(float, Parameter) { return 0; }
  static constexpr bool kReadsParameter = true, kMaster = false, kRandom = false;
};
struct StoreBf16Master {
  using Parameter = uint16_t;
  using Master = float;
  static float load(Parameter, Master m) { return m; }
  static Parameter round(float w, uint32_t) { return float_to_bf16(w); }
  static Master rest(float w, Parameter) { return w; }
  static constexpr bool kReadsParameter = false, kMaster = true, kRandom = false;
};
struct StoreF16Master : StoreBf16Master {
  static Parameter round(float w, uint32_t) { return float_to_half(w); }
};
struct StoreBf16Split {
  using Parameter = uint16_t;
  using Master = int16_t;
  static float load(Parameter p, Master low) {
    return bits_to_float((uint32_t{p} << 16) + static_cast<uint32_t>(int32_t{low}));
  }
  static uint32_t bits(float w) {
    const uint32_t own = float_to_bits(w);
    // One NaN for all: others could carry into the sign when they are rounded.
    return (own & 0x7fffffffU) > 0x7f800000U ? 0x7fc00000U : own;
  }
  static Parameter round(float w, uint32_t) { return static_cast<uint16_t>((bits(w) + 0x8000U) >> 16); }
  static Master rest(float w, Parameter) { return static_cast<int16_t>(static_cast<uint16_t>(bits(w))); }
  static constexpr bool kReadsParameter = true, kMaster = true, kRandom = false;
};
struct StoreBf16Stochastic {
  using Parameter = uint16_t;
  using Master = float;
  static float load(Parameter p, Master) { return bf16_to_float(p); }
  static Parameter round(float w, uint32_t random) { return float_to_bf16_stochastic(w, random); }
  static Master rest(float, Parameter) { return 0; }
  static constexpr bool kReadsParameter = true, kMaster = false, kRandom = true;
};
struct StoreBf16Kahan {
  using Parameter = uint16_t;
  using Master = uint16_t;
  static float load(Parameter p, Master lost) { return bf16_to_float(p) + bf16_to_float(lost); }
  static Parameter round(float w, uint32_t) { return float_to_bf16(w); }
  static Master rest(float w, Parameter p) { return float_to_bf16(w - bf16_to_float(p)); }
  static constexpr bool kReadsParameter = true, kMaster = true, kRandom = false;
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

template <typename T>
inline void prefetch_block(const T* from) {
  prefetch_lines(reinterpret_cast<const char*>(from) + kPrefetchUpdate,
                 kBlock * static_cast<int64_t>(sizeof(T)));
}

/// The random words of the elements [begin, begin + n) of a tensor. Not inlined, as the next two: every rule,
/// store and gradient would have a copy.
__attribute__((noinline)) void random_words(formats::RandomKey key, int64_t begin, int64_t n,
                                            uint32_t* words) {
  for (int64_t i = 0; i < n; i += formats::kRandomGroup) {
    const auto group = static_cast<uint64_t>((begin + i) / formats::kRandomGroup);
    ULP_RANDOM_BITS_OF_GROUP(key, group, words + i);
  }
}

/// As kernels::random_half() for the elements [begin, begin + n): a block of `random` holds more.
__attribute__((noinline)) void random_halves(formats::RandomKey key, int64_t begin, int64_t n,
                                             uint32_t* __restrict random) {
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
  prefetch_block(codes);
  for (int64_t i = 0; i < n; ++i) wide[i] = Grad::load(codes[i]);
}

/// The elements [begin, begin + n) of an array as fp32 numbers: where they are, or in `wide` for 16-bit
/// types.
__attribute__((noinline)) float* widen(void* array, FloatType type, int64_t begin, int64_t n, float* wide) {
  if (type == FloatType::bf16) {
    widen_codes<GradBf16>(array, begin, n, wide);
    return wide;
  }
  if (type == FloatType::f16) {
    widen_codes<GradF16>(array, begin, n, wide);
    return wide;
  }
  float* own = static_cast<float*>(array) + begin;
  prefetch_block(own);
  return own;
}

/// Stores a block that widen() put into `wide`; each element takes 16 bits of its word, from bit `shift` on.
__attribute__((noinline)) void narrow(const float* __restrict wide, const uint32_t* __restrict words,
                                      uint32_t shift, int64_t n, uint16_t* __restrict codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = float_to_bf16_stochastic(wide[i], words[i] >> shift & 0xffffU);
}

template <typename Rule, typename Store>
void update(const UpdateRun& run) {
  const RuleStep s(*run.step);
  const float inverse_scale = run.inverse_scale, clip = run.clip;
  uint32_t random[kBlock];
  float wide_gradient[kBlock], wide_first[kBlock], wide_second[kBlock];
  const FloatType moments = run.moments == MomentStore::f32 ? FloatType::f32 : FloatType::bf16;
  for (int64_t begin = 0; begin < run.size; begin += kBlock) {
    const int64_t n = run.size - begin < kBlock ? run.size - begin : kBlock;
    const float* __restrict g =
        widen(const_cast<void*>(run.gradient), run.gradient_type, begin, n, wide_gradient);
    auto* __restrict p = static_cast<typename Store::Parameter*>(run.parameter) + begin;
    auto* __restrict master = static_cast<typename Store::Master*>(run.master) + (Store::kMaster ? begin : 0);
    float* __restrict first = nullptr;
    float* __restrict second = nullptr;
    if constexpr (Store::kReadsParameter) prefetch_block(p);
    if constexpr (Store::kMaster) prefetch_block(master);
    if constexpr (Rule::kFirst) first = widen(run.first, moments, begin, n, wide_first);
    if constexpr (Rule::kSecond) second = widen(run.second, moments, begin, n, wide_second);
    if constexpr (Store::kRandom) random_halves(run.random, run.begin + begin, n, random);
    for (int64_t i = 0; i < n; ++i) {
      typename Store::Parameter own{};
      typename Store::Master rest{};
      float m = 0, v = 0;
      if constexpr (Store::kReadsParameter) own = p[i];
      if constexpr (Store::kMaster) rest = master[i];
      if constexpr (Rule::kFirst) m = first[i];
      if constexpr (Rule::kSecond) v = second[i];
      const float gradient = g[i] * inverse_scale * clip;
      const float weight = Rule::next(s, gradient, Store::load(own, rest), m, v);
      const auto rounded = Store::round(weight, Store::kRandom ? random[i] : 0);
      p[i] = rounded;
      if constexpr (Store::kMaster) master[i] = Store::rest(weight, rounded);
      if constexpr (Rule::kFirst) first[i] = m;
      if constexpr (Rule::kSecond) second[i] = v;
    }
    if (Rule::kFirst && run.moments == MomentStore::bf16) {
      random_words({run.random.seed ^ kMomentSeed, run.random.stream}, run.begin + begin, n, random);
      narrow(first, random, 16, n, static_cast<uint16_t*>(run.first) + begin);
      if constexpr (Rule::kSecond) narrow(second, random, 0, n, static_cast<uint16_t*>(run.second) + begin);
    }
  }
}

}  // namespace

#define ULP_STORES(rule)                                                                              \
  {                                                                                                   \
    update<rule, StoreF32>, update<rule, StoreBf16Master>, update<rule, StoreF16Master>,              \
        update<rule, StoreBf16Split>, update<rule, StoreBf16Stochastic>, update<rule, StoreBf16Kahan> \
  }

extern const OptimizerOps ULP_OPTIMIZER_OPS;
const OptimizerOps ULP_OPTIMIZER_OPS = {
    {square_sum<GradF32>, square_sum<GradBf16>, square_sum<GradF16>},
    {ULP_STORES(Sgd), ULP_STORES(SgdMomentum), ULP_STORES(Adam), ULP_STORES(AdamW)}};

}  // namespace ulp::kernels
