// The kernels of an optimizer step on a GPU: the arithmetic of ulp/kernels/training/optimizer_body.h, bit for
// bit, one thread an element. NVRTC compiles this text at run time, without any header; the same text is C++,
// in which the threads of a block are a loop: so it is tested, and so the host has the structures. A block
// has kThreads threads in one dimension.
#ifdef __CUDACC_RTC__
#define ULP_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ULP_DEVICE static __device__ __forceinline__
#define ULP_SHARED __shared__
#define ULP_BLOCK (static_cast<i64>(blockIdx.x))
#define ULP_BARRIER __syncthreads()
#define ULP_THREADS(t) for (i32 t = static_cast<i32>(threadIdx.x), once_ = 0; once_ == 0; once_ = 1)
#define ULP_OWN(type, name) type name[1]
#define ULP_AT(t) 0
#define ULP_MAX_INTO(place, value) atomicMax(&(place), value)
#define ULP_BITS(x) __float_as_uint(x)
#define ULP_FLOAT(x) __uint_as_float(x)
#define ULP_FMA(a, b, c) __fmaf_rn(a, b, c)
#define ULP_FMA_DOUBLE(a, b, c) __fma_rn(a, b, c)
#define ULP_ROOT(x) __fsqrt_rn(x)
#define ULP_ROOT_DOUBLE(x) __dsqrt_rn(x)
#else
#define ULP_KERNEL [[maybe_unused]] static void
#define ULP_DEVICE [[maybe_unused]] static inline
#define ULP_SHARED
#define ULP_BLOCK (ulp_device::block_now)
#define ULP_BARRIER static_cast<void>(0)
#define ULP_THREADS(t) for (i32 t = 0; t < kThreads; ++t)
#define ULP_OWN(type, name) type name[kThreads]
#define ULP_AT(t) t
#define ULP_MAX_INTO(place, value) (place) = (place) < (value) ? (value) : (place)
#define ULP_BITS(x) __builtin_bit_cast(u32, x)
#define ULP_FLOAT(x) __builtin_bit_cast(float, x)
#define ULP_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define ULP_FMA_DOUBLE(a, b, c) __builtin_fma(a, b, c)
#define ULP_ROOT(x) __builtin_sqrtf(x)
#define ULP_ROOT_DOUBLE(x) __builtin_sqrt(x)
#endif

namespace ulp_device {

typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifndef __CUDACC_RTC__
[[maybe_unused]] static thread_local i64 block_now = 0;
#endif

constexpr i32 kThreads = 256;
constexpr i64 kTile = 4096;        // elements that a block updates, a multiple of kThreads
// Elements whose squares are one sum; the order of additions is part of the result.
constexpr i64 kSumChunk = 1 << 14;
constexpr i32 kSumLanes = 16;

// Types of gradients, and the enumerators of WeightStore, MomentStore and UpdateKind by their numbers.
constexpr i32 kF32 = 0, kBf16 = 1, kF16 = 2;
constexpr i32 kStoreF32 = 0, kStoreBf16Master = 1, kStoreF16Master = 2, kStoreSplit = 3, kStoreStochastic = 4,
              kStoreKahan = 5;
constexpr i32 kMomentF32 = 0, kMomentBf16 = 1, kMomentInt8 = 2, kMomentInt4 = 3;
constexpr i32 kSgd = 0, kSgdMomentum = 1, kAdam = 2, kAdamW = 3;

/// DecadeMap of moment_maps.h: tables of eight entries.
struct DecadeTables {
  float step[8], base[8], slope[8], offset[8], last[8], next[8], one;
  i32 zero_code, estimate;
};
struct MomentTables {
  DecadeTables signed8, signed4;
  i32 fine_drop, fine_less, coarse_drop, coarse_less;  // SquareMap8
};

/// UpdateStep, and the number of the step, from 1.
struct StepNumbers {
  i32 kind, nesterov, first_step, reserved;
  float negative_lr, momentum, one_minus_dampening, weight_decay;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay, negative_step_size, sqrt_correction2, eps;
  i64 count;
};

/// The rule's numbers that StepNumbers are made of where the device counts the steps.
struct RuleNumbers {
  i32 kind, nesterov;
  double lr, momentum, dampening, weight_decay, beta1, beta2, eps;
};

/// OptimizerTensor, and where its tiles and sums begin among those of all.
struct ParameterEntry {
  const void* gradient;
  void *parameter, *master, *first, *second;
  float *first_absmax, *second_absmax;
  const u8* mask;
  i64 size, random_begin, first_tile, first_sum;
  u64 seed;
  u32 ordinal;
  i32 gradient_type, store, moments;
};

struct UpdateArgs {
  const ParameterEntry* entries;
  const StepNumbers* numbers;
  const MomentTables* tables;
  // On the device: inverse scale, clip, and 1 where nothing is to change; null: the two below.
  const float* control;
  float inverse_scale, clip;
  i32 count, reserved;
};

struct NumbersArgs {
  const RuleNumbers* rules;  // one an entry
  StepNumbers* numbers;
  i64* steps;
  i32* first;
  const float* control;
  i32 count, reserved;
};

struct SumArgs {
  const ParameterEntry* entries;
  double* sums;
  i64 chunks;
  i32 count, reserved;
};

struct TotalArgs {
  const double* sums;
  double* total;  // and its square root behind it
  i64 chunks;
};

ULP_DEVICE float bf16_to_float(u16 value) {
  return ULP_FLOAT(static_cast<u32>(value) << 16);
}
ULP_DEVICE u16 float_to_bf16(float value) {
  const u32 bits = ULP_BITS(value);
  const u32 rounded = bits + 0x7fffU + (bits >> 16 & 1U);
  return static_cast<u16>((value != value ? bits | 0x400000U : rounded) >> 16);
}
ULP_DEVICE float half_to_float(u16 value) {
  const u32 sign = (static_cast<u32>(value) & 0x8000U) << 16;
  const u32 magnitude = static_cast<u32>(value) & 0x7fffU;
  const u32 normal = (magnitude << 13) + (magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U);
  const float subnormal = ULP_FLOAT((magnitude << 13) + 0x38800000U) - ULP_FLOAT(0x38800000U);
  const u32 quiet = magnitude > 0x7c00U ? 0x400000U : 0U;
  return ULP_FLOAT(sign | quiet | (magnitude < 0x400U ? ULP_BITS(subnormal) : normal));
}
ULP_DEVICE u16 float_to_half(float value) {
  const u32 bits = ULP_BITS(value);
  const u32 sign = bits >> 16 & 0x8000U;
  const u32 magnitude = bits & 0x7fffffffU;
  const u32 normal = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  const u32 subnormal = ULP_BITS(ULP_FLOAT(magnitude) + 0.5F) - 0x3f000000U;
  u32 result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;
  result = magnitude > 0x7f800000U ? 0x7e00U | (magnitude >> 13 & 0x3ffU) : result;
  return static_cast<u16>(sign | result);
}
ULP_DEVICE u16 float_to_bf16_stochastic(float value, u32 random) {
  const u32 own = ULP_BITS(value);
  return static_cast<u16>((value != value ? own | 0x400000U : own + random) >> 16);
}

/// Philox 4x32-10, as in ulp/formats/random_bits.h.
ULP_DEVICE u32 random_bits(u64 seed, u64 stream, u64 index) {
  const u64 block = index / 64 * 16 + index % 16;
  u32 w0 = static_cast<u32>(block), w1 = static_cast<u32>(block >> 32);
  u32 w2 = static_cast<u32>(stream), w3 = static_cast<u32>(stream >> 32);
  u32 key0 = static_cast<u32>(seed), key1 = static_cast<u32>(seed >> 32);
  for (i32 round = 0; round < 10; ++round) {
    const u64 product0 = static_cast<u64>(0xD2511F53U) * w0, product1 = static_cast<u64>(0xCD9E8D57U) * w2;
    const u32 next0 = static_cast<u32>(product1 >> 32) ^ w1 ^ key0;
    const u32 next2 = static_cast<u32>(product0 >> 32) ^ w3 ^ key1;
    w1 = static_cast<u32>(product1);
    w3 = static_cast<u32>(product0);
    w0 = next0;
    w2 = next2;
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  const i32 word = static_cast<i32>(index / 16 % 4);
  return word == 0 ? w0 : word == 1 ? w1 : word == 2 ? w2 : w3;
}
/// Half a word: one serves two elements 64 apart.
ULP_DEVICE u32 random_half(u64 seed, u64 stream, u64 index) {
  return random_bits(seed, stream, index / 128 * 64 + index % 64) >> (index / 64 % 2 * 16) & 0xffffU;
}

ULP_DEVICE float load_gradient(const ParameterEntry& e, i64 i) {
  if (e.gradient_type == kF32) return static_cast<const float*>(e.gradient)[i];
  const u16 code = static_cast<const u16*>(e.gradient)[i];
  return e.gradient_type == kBf16 ? bf16_to_float(code) : half_to_float(code);
}

/// The entry that has a tile, or a sum: the last that begins at or before it.
ULP_DEVICE i32 entry_of_tile(const ParameterEntry* entries, i32 count, i64 tile) {
  i32 low = 0, high = count;
  while (high - low > 1) {
    const i32 middle = low + (high - low) / 2;
    if (entries[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}
ULP_DEVICE i32 entry_of_sum(const ParameterEntry* entries, i32 count, i64 chunk) {
  i32 low = 0, high = count;
  while (high - low > 1) {
    const i32 middle = low + (high - low) / 2;
    if (entries[middle].first_sum <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// ---- weights -------------------------------------------------------------------------------------------

ULP_DEVICE float load_weight(const ParameterEntry& e, i64 i) {
  if (e.store == kStoreF32) return static_cast<const float*>(e.parameter)[i];
  if (e.store == kStoreBf16Master || e.store == kStoreF16Master)
    return static_cast<const float*>(e.master)[i];
  const u16 code = static_cast<const u16*>(e.parameter)[i];
  if (e.store == kStoreStochastic) return bf16_to_float(code);
  if (e.store == kStoreKahan)
    return bf16_to_float(code) + bf16_to_float(static_cast<const u16*>(e.master)[i]);
  const i32 low = static_cast<const short*>(e.master)[i];
  return ULP_FLOAT((static_cast<u32>(code) << 16) + static_cast<u32>(low));
}

ULP_DEVICE void store_weight(const ParameterEntry& e, i64 i, float w, u64 stream) {
  u16* const codes = static_cast<u16*>(e.parameter);
  if (e.store == kStoreF32) {
    static_cast<float*>(e.parameter)[i] = w;
  } else if (e.store == kStoreBf16Master || e.store == kStoreF16Master) {
    static_cast<float*>(e.master)[i] = w;
    codes[i] = e.store == kStoreBf16Master ? float_to_bf16(w) : float_to_half(w);
  } else if (e.store == kStoreStochastic) {
    codes[i] = float_to_bf16_stochastic(w, random_half(e.seed, stream, static_cast<u64>(e.random_begin + i)));
  } else if (e.store == kStoreKahan) {
    codes[i] = float_to_bf16(w);
    static_cast<u16*>(e.master)[i] = float_to_bf16(w - bf16_to_float(codes[i]));
  } else {
    const u32 own = ULP_BITS(w);
    const u32 bits = (own & 0x7fffffffU) > 0x7f800000U ? 0x7fc00000U : own;
    codes[i] = static_cast<u16>((bits + 0x8000U) >> 16);
    static_cast<u16*>(e.master)[i] = static_cast<u16>(bits);
  }
}

// ---- moments -------------------------------------------------------------------------------------------

ULP_DEVICE float decode_decades(const DecadeTables& map, i32 code, float absmax) {
  const i32 side = code - map.zero_code;
  const i32 u = side < 0 ? -side : side;
  const u32 bits = ULP_BITS(static_cast<float>(u) + 0.5F);
  const float fraction = ULP_FLOAT((bits & 0x7fffffU) | 0x3f800000U) - 1.0F;
  const i32 exponent = static_cast<i32>(bits >> 23) & 7;
  const float found = fraction * map.step[exponent] + map.base[exponent];
  const float magnitude = side == 0 ? 0.0F : found;
  return ULP_FLOAT(ULP_BITS(magnitude) ^ (side < 0 ? 0x80000000U : 0U)) * absmax;
}
ULP_DEVICE i32 encode_decades(const DecadeTables& map, float wide, float inverse, i32 least) {
  const float share = wide * inverse;
  const u32 magnitude_bits = ULP_BITS(share) & 0x7fffffffU;
  const float y = ULP_FLOAT(magnitude_bits);
  const i32 exponent = static_cast<i32>(magnitude_bits >> 23);
  const i32 estimate = (exponent * 5 + map.estimate) >> 4;
  const i32 below = estimate > 0 ? estimate : 0;
  const i32 place = y >= map.next[below & 7] ? below + 1 : below;
  const float exact = y * map.slope[place & 7] + map.offset[place & 7];
  const float last = map.last[place & 7];
  const i32 inside = static_cast<i32>(exact < last ? exact : last);
  const i32 u = share >= map.one ? inside + 1 : inside;
  return share < 0.0F ? map.zero_code - (u > least ? u : least) : map.zero_code + u;
}
ULP_DEVICE i32 smaller(i32 a, i32 b) {
  return a < b ? a : b;
}
ULP_DEVICE i32 larger(i32 a, i32 b) {
  return a > b ? a : b;
}
ULP_DEVICE float decode_square8(const MomentTables& t, i32 code, float absmax) {
  const i32 bits = smaller((code + t.fine_less) << t.fine_drop, (code + t.coarse_less) << t.coarse_drop);
  return ULP_FLOAT(code == 0 ? 0U : static_cast<u32>(bits)) * absmax;
}
ULP_DEVICE i32 encode_square8(const MomentTables& t, float square, float inverse) {
  const i32 bits = static_cast<i32>(ULP_BITS(square * inverse));
  const i32 fine = ((bits + (1 << (t.fine_drop - 1))) >> t.fine_drop) - t.fine_less;
  const i32 coarse = ((bits + (1 << (t.coarse_drop - 1))) >> t.coarse_drop) - t.coarse_less;
  return square > 0.0F ? larger(larger(fine, coarse), 1) : 0;
}

/// A moment as a number; `squares`: the second of Adam.
ULP_DEVICE float load_moment(const ParameterEntry& e, const MomentTables& t, bool squares, i64 i) {
  const void* const values = squares ? e.second : e.first;
  if (e.moments == kMomentF32) return static_cast<const float*>(values)[i];
  if (e.moments == kMomentBf16) return bf16_to_float(static_cast<const u16*>(values)[i]);
  const bool is_int8 = e.moments == kMomentInt8;
  const float absmax = (squares ? e.second_absmax : e.first_absmax)[i / (is_int8 ? 256 : 128)];
  if (absmax == 0.0F) return 0.0F;
  const u8 byte = static_cast<const u8*>(values)[is_int8 ? i : i / 2];
  if (is_int8) return squares ? decode_square8(t, byte, absmax) : decode_decades(t.signed8, byte, absmax);
  const i32 code = i % 2 == 0 ? byte & 15 : byte >> 4;
  return squares ? static_cast<float>(code + 1) * 0.0625F * absmax : decode_decades(t.signed4, code, absmax);
}
/// Stores moments of fp32 and bf16.
ULP_DEVICE void store_moment(const ParameterEntry& e, bool squares, i64 i, float wide, u32 random) {
  void* const values = squares ? e.second : e.first;
  if (e.moments == kMomentF32) {
    static_cast<float*>(values)[i] = wide;
  } else {
    static_cast<u16*>(values)[i] = float_to_bf16_stochastic(wide, random);
  }
}

/// The absmax of a block from the bits of its largest magnitude.
ULP_DEVICE float absmax_of(u32 largest_bits, bool squares, bool is_int8) {
  const float least_absmax = !squares ? 0x1p-126F : is_int8 ? 0x1p-100F : 0x1p-122F;
  const float largest = ULP_FLOAT(largest_bits >= 0x7f800000U ? 0x7fc00000U : largest_bits);
  const float least = squares && largest > 0.0F ? least_absmax : 0.0F;
  return largest < least_absmax ? least : largest;
}
ULP_DEVICE i32 zero_code_of(bool squares, bool is_int8) {
  return squares ? 0 : is_int8 ? 127 : 7;
}
ULP_DEVICE u8 encode_moment(const MomentTables& t, bool squares, bool is_int8, float wide, float absmax) {
  if (!(absmax > 0.0F)) return static_cast<u8>(zero_code_of(squares, is_int8));
  const float inverse = 1.0F / absmax;
  if (!squares)
    return static_cast<u8>(encode_decades(is_int8 ? t.signed8 : t.signed4, wide, inverse, is_int8 ? 1 : 0));
  if (is_int8) return static_cast<u8>(encode_square8(t, wide, inverse));
  return static_cast<u8>(static_cast<i32>(wide * inverse * 16.0F - 0.5F));
}

// ---- the update ----------------------------------------------------------------------------------------

/// The next weight; m and v become the next moments.
ULP_DEVICE float next_weight(const StepNumbers& s, float g, float p, float& m, float& v) {
  if (s.kind == kAdamW) {
    p = p * s.decay;
  } else if (s.weight_decay != 0) {
    g = ULP_FMA(p, s.weight_decay, g);
  }
  if (s.kind == kSgd) return ULP_FMA(g, s.negative_lr, p);
  if (s.kind == kSgdMomentum) {
    m = s.first_step != 0 ? g : ULP_FMA(g, s.one_minus_dampening, s.momentum * m);
    return ULP_FMA(s.nesterov != 0 ? ULP_FMA(m, s.momentum, g) : m, s.negative_lr, p);
  }
  m = ULP_FMA(g, s.one_minus_beta1, s.beta1 * m);
  v = ULP_FMA(s.one_minus_beta2 * g, g, s.beta2 * v);
  const float root = ULP_ROOT(v), reciprocal = 1.0F / s.sqrt_correction2;
  const float quotient = root * reciprocal;
  const float remainder = ULP_FMA(-quotient, s.sqrt_correction2, root);
  const float corrected = ULP_FMA(root <= 0x1p100F ? remainder : 0.0F, reciprocal, quotient);
  return p + s.negative_step_size * m / (corrected + s.eps);
}

ULP_DEVICE bool is_trained(const ParameterEntry& e, i64 i) {
  return e.mask == nullptr || (e.mask[i / 8] >> (i % 8) & 1) != 0;
}

/// A block updates a tile of one parameter, kThreads elements at a time.
ULP_KERNEL ulp_update(UpdateArgs a) {
  if (a.control != nullptr && a.control[2] != 0.0F) return;
  const float inverse_scale = a.control != nullptr ? a.control[0] : a.inverse_scale;
  const float clip = a.control != nullptr ? a.control[1] : a.clip;
  const i32 index = entry_of_tile(a.entries, a.count, ULP_BLOCK);
  const ParameterEntry e = a.entries[index];
  const StepNumbers s = a.numbers[index];
  const MomentTables& tables = *a.tables;
  const u64 stream = static_cast<u64>(s.count) << 32 | e.ordinal;
  const bool has_first = s.kind != kSgd, has_second = s.kind >= kAdam;
  const bool is_int8 = e.moments == kMomentInt8, in_blocks = e.moments >= kMomentInt8 && has_first;
  const i32 block = is_int8 ? 256 : 128;
  ULP_SHARED u32 largest[2][2];
  ULP_SHARED u8 codes[2][kThreads];
  const i64 tile = (ULP_BLOCK - e.first_tile) * kTile;
  const i64 end = e.size - tile < kTile ? e.size : tile + kTile;
  for (i64 begin = tile; begin < end; begin += kThreads) {
    ULP_OWN(float, m);
    ULP_OWN(float, v);
    ULP_THREADS(t) {
      if (t < 4) largest[t / 2][t % 2] = 0;
    }
    ULP_BARRIER;
    ULP_THREADS(t) {
      const i64 i = begin + t;
      if (i >= end) continue;
      float& first = m[ULP_AT(t)];
      float& second = v[ULP_AT(t)];
      first = has_first ? load_moment(e, tables, false, i) : 0.0F;
      second = has_second ? load_moment(e, tables, true, i) : 0.0F;
      const float g = load_gradient(e, i) * inverse_scale * clip;
      const float w = next_weight(s, g, load_weight(e, i), first, second);
      const bool trained = is_trained(e, i);
      if (trained) store_weight(e, i, w, stream);
      if (in_blocks) {
        if (!trained) first = second = 0.0F;
        ULP_MAX_INTO(largest[0][t / block], ULP_BITS(first) & 0x7fffffffU);
        if (has_second) ULP_MAX_INTO(largest[1][t / block], ULP_BITS(second) & 0x7fffffffU);
        continue;
      }
      u32 random = 0;
      if (has_first && e.moments == kMomentBf16)
        random = random_bits(e.seed ^ 0x6d6f6d656e747321ULL, stream, static_cast<u64>(e.random_begin + i));
      // Masked moments are exactly zero, which no random bits change.
      if (has_first) store_moment(e, false, i, trained ? first : 0.0F, trained ? random >> 16 : 0U);
      if (has_second) store_moment(e, true, i, trained ? second : 0.0F, trained ? random & 0xffffU : 0U);
    }
    if (!in_blocks) continue;
    ULP_BARRIER;
    ULP_THREADS(t) {
      const i64 i = begin + t;
      if (i >= end) continue;
      for (i32 k = 0; k < (has_second ? 2 : 1); ++k) {
        const bool squares = k == 1;
        const float absmax = absmax_of(largest[k][t / block], squares, is_int8);
        if (t % block == 0) (squares ? e.second_absmax : e.first_absmax)[i / block] = absmax;
        const u8 code = encode_moment(tables, squares, is_int8, (squares ? v : m)[ULP_AT(t)], absmax);
        codes[k][t] = code;
        if (is_int8) static_cast<u8*>(squares ? e.second : e.first)[i] = code;
      }
    }
    ULP_BARRIER;
    if (is_int8) continue;
    ULP_THREADS(t) {
      const i64 i = begin + t;
      if (i >= end || t % 2 != 0) continue;
      for (i32 k = 0; k < (has_second ? 2 : 1); ++k) {
        const bool squares = k == 1, zeros = !(absmax_of(largest[k][t / block], squares, false) > 0.0F);
        const i32 behind = zeros ? zero_code_of(squares, false) : 0;  // of an odd end
        const i32 high = i + 1 < e.size ? codes[k][t + 1] : behind;
        static_cast<u8*>(squares ? e.second : e.first)[i / 2] = static_cast<u8>(codes[k][t] | high << 4);
      }
    }
    ULP_BARRIER;
  }
}

// ---- numbers of a step that the device counts ------------------------------------------------------------

struct Wide {
  double high, low;
};
ULP_DEVICE Wide multiply(Wide a, Wide b) {
  const double product = a.high * b.high;
  const double rest = ULP_FMA_DOUBLE(a.high, b.high, -product) + (a.high * b.low + a.low * b.high);
  const double sum = product + rest;
  return {sum, rest - (sum - product)};
}
/// base^exponent, with twice the digits of a double on the way.
ULP_DEVICE double power(double base, i64 exponent) {
  Wide result = {1.0, 0.0}, square = {base, 0.0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result.high;
}

/// A thread makes the numbers of one entry's next step, and counts it, unless the step is skipped.
ULP_KERNEL ulp_numbers(NumbersArgs a) {
  if (a.control[2] != 0.0F) return;
  ULP_THREADS(t) {
    const i64 i = ULP_BLOCK * kThreads + t;
    if (i >= a.count) continue;
    const RuleNumbers r = a.rules[i];
    StepNumbers s = {};
    s.kind = r.kind;
    s.count = ++a.steps[i];
    if (r.kind <= kSgdMomentum) {
      s.nesterov = r.nesterov;
      s.first_step = a.first[i];
      a.first[i] = 0;
      s.negative_lr = static_cast<float>(-r.lr);
      s.momentum = static_cast<float>(r.momentum);
      s.one_minus_dampening = static_cast<float>(1 - r.dampening);
      s.weight_decay = static_cast<float>(r.weight_decay);
    } else {
      s.beta1 = static_cast<float>(r.beta1);
      s.one_minus_beta1 = static_cast<float>(1 - r.beta1);
      s.beta2 = static_cast<float>(r.beta2);
      s.one_minus_beta2 = static_cast<float>(1 - r.beta2);
      s.eps = static_cast<float>(r.eps);
      s.negative_step_size = static_cast<float>(-r.lr / (1 - power(r.beta1, s.count)));
      s.sqrt_correction2 = static_cast<float>(ULP_ROOT_DOUBLE(1 - power(r.beta2, s.count)));
      s.weight_decay = static_cast<float>(r.weight_decay);
      s.decay = static_cast<float>(1 - r.lr * r.weight_decay);
    }
    a.numbers[i] = s;
  }
}

// ---- the sum of the squares of all gradients -------------------------------------------------------------

/// A block sums kThreads / kSumLanes chunks: a thread has every kSumLanes-th element of one, in order.
ULP_KERNEL ulp_square_sums(SumArgs a) {
  ULP_SHARED double lanes[kThreads];
  ULP_THREADS(t) {
    const i64 chunk = ULP_BLOCK * (kThreads / kSumLanes) + t / kSumLanes;
    double sum = 0;
    if (chunk < a.chunks) {
      const ParameterEntry& e = a.entries[entry_of_sum(a.entries, a.count, chunk)];
      const i64 begin = (chunk - e.first_sum) * kSumChunk;
      const i64 end = e.size - begin < kSumChunk ? e.size : begin + kSumChunk;
      for (i64 i = begin + t % kSumLanes; i < end; i += kSumLanes) {
        const double wide = is_trained(e, i) ? static_cast<double>(load_gradient(e, i)) : 0.0;
        sum = ULP_FMA_DOUBLE(wide, wide, sum);
      }
    }
    lanes[t] = sum;
  }
  ULP_BARRIER;
  for (i32 width = kSumLanes / 2; width > 0; width /= 2) {
    ULP_THREADS(t) {
      if (t % kSumLanes < width) lanes[t] += lanes[t + width];
    }
    ULP_BARRIER;
  }
  ULP_THREADS(t) {
    const i64 chunk = ULP_BLOCK * (kThreads / kSumLanes) + t / kSumLanes;
    if (t % kSumLanes == 0 && chunk < a.chunks) a.sums[chunk] = lanes[t];
  }
}

/// One thread adds the sums in their order.
ULP_KERNEL ulp_total(TotalArgs a) {
  ULP_THREADS(t) {
    if (t != 0) continue;
    double total = 0;
    for (i64 i = 0; i < a.chunks; ++i) total += a.sums[i];
    a.total[0] = total;
    a.total[1] = ULP_ROOT_DOUBLE(total);
  }
}

}  // namespace ulp_device

#undef ULP_KERNEL
#undef ULP_DEVICE
#undef ULP_SHARED
#undef ULP_BLOCK
#undef ULP_BARRIER
#undef ULP_THREADS
#undef ULP_OWN
#undef ULP_AT
#undef ULP_MAX_INTO
#undef ULP_BITS
#undef ULP_FLOAT
#undef ULP_FMA
#undef ULP_FMA_DOUBLE
#undef ULP_ROOT
#undef ULP_ROOT_DOUBLE
