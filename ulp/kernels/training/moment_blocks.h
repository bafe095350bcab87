// Blocks of 8-bit and 4-bit moments to fp32 numbers and back, on vectors of the compiler: no table has more
// than eight entries, so that looking a value up is an instruction. For files that define ULP_VECTOR_BYTES;
// everything has internal linkage.
#pragma once

#include <cstdint>

#if ULP_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/training/moment_maps.h"
#include "ulp/kernels/training/optimizer_ops.h"

namespace ulp::kernels {
namespace {

#define ULP_INLINE inline __attribute__((always_inline))

constexpr int64_t kLanes = ULP_VECTOR_BYTES / 4;
typedef float Floats __attribute__((vector_size(ULP_VECTOR_BYTES)));
typedef int32_t Ints __attribute__((vector_size(ULP_VECTOR_BYTES)));
/// As they may lie in memory.
typedef float StoredFloats __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));
typedef uint8_t StoredBytes __attribute__((vector_size(ULP_VECTOR_BYTES / 4), aligned(1), may_alias));

/// table[place % 8] of a table that holds its eight entries twice, on a line of the cache.
ULP_INLINE Floats look_up(const float* table, Ints place) {
#if ULP_VECTOR_BYTES == 64
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(place), _mm512_load_ps(table));
#elif ULP_VECTOR_BYTES == 32
  return _mm256_permutevar8x32_ps(_mm256_load_ps(table), reinterpret_cast<__m256i>(place));
#else
  Floats found;
  for (int l = 0; l < kLanes; ++l) found[l] = table[place[l] & 7];
  return found;
#endif
}

/// kLanes bytes as numbers. GCC 12 takes them apart one by one where it is asked to convert the vector.
ULP_INLINE Ints load_codes_of(const uint8_t* codes) {
#if ULP_VECTOR_BYTES == 64
  return reinterpret_cast<Ints>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
#elif ULP_VECTOR_BYTES == 32
  return reinterpret_cast<Ints>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
#else
  return __builtin_convertvector(*reinterpret_cast<const StoredBytes*>(codes), Ints);
#endif
}

/// And back; numbers below 256.
ULP_INLINE void store_codes(uint8_t* to, Ints codes) {
#if ULP_VECTOR_BYTES == 64
  // By way of a register: narrowing into memory takes several times as long on some processors.
  __m128i narrow = _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(codes));
  __asm__("" : "+x"(narrow));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
#elif ULP_VECTOR_BYTES == 32
  const auto all = reinterpret_cast<__m256i>(codes);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
#else
  *reinterpret_cast<StoredBytes*>(to) = __builtin_convertvector(codes, StoredBytes);
#endif
}

/// Whole numbers of at least 0, below 2^31.
ULP_INLINE Ints truncated(Floats x) {
  return __builtin_convertvector(x, Ints);
}

/// Calls with(from, to) for whole vectors, and for the rest by way of room for one, whose end is zero.
template <typename From, typename To, typename With>
ULP_INLINE void for_each_vector(const From* from, int64_t n, To* to, With&& with) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) with(from + i, to + i);
  if (i == n) return;
  From rest[kLanes] = {};
  To made[kLanes];
  for (int64_t l = 0; i + l < n; ++l) rest[l] = from[i + l];
  with(rest, made);
  for (int64_t l = 0; i + l < n; ++l) to[i + l] = made[l];
}

/// wide[i] = absmax times the value of a code.
template <typename Map>
void decode_decades(const uint8_t* codes, float absmax, int64_t n, float* wide) {
  const Map& map = MapTables<Map>::kMap;
  for_each_vector(
      codes, n, wide, [&](const uint8_t* from, float* to) __attribute__((always_inline)) {
        const Ints code = load_codes_of(from);
        const Ints side = code - Map::kZeroCode;
        const Ints u = side < 0 ? -side : side;
        const auto bits = reinterpret_cast<Ints>(__builtin_convertvector(u, Floats) + 0.5F);
        const Floats fraction = reinterpret_cast<Floats>((bits & 0x7fffff) | 0x3f800000) - 1.0F;
        const Ints exponent = bits >> 23;
        const Floats found = fraction * look_up(map.step, exponent) + look_up(map.base, exponent);
        const Floats magnitude = side == 0 ? Floats{} : found;
        const Ints sign = side & INT32_MIN;
        *reinterpret_cast<StoredFloats*>(to) =
            reinterpret_cast<Floats>(reinterpret_cast<Ints>(magnitude) ^ sign) * absmax;
      });
}

/// codes[i] = that of the value nearest to wide[i] * inverse, whose magnitudes are at most 1 (and a
/// rounding); kKeepSign: of the least one below 0 where that would be 0 and wide[i] is negative.
template <typename Map, bool kKeepSign>
void encode_decades(const float* wide, float inverse, int64_t n, uint8_t* codes) {
  const Map& map = MapTables<Map>::kMap;
  for_each_vector(
      wide, n, codes, [&](const float* from, uint8_t* to) __attribute__((always_inline)) {
        const Floats share = *reinterpret_cast<const StoredFloats*>(from) * inverse;
        const Ints magnitude_bits = reinterpret_cast<Ints>(share) & 0x7fffffff;
        const auto y = reinterpret_cast<Floats>(magnitude_bits);
        const Ints exponent = magnitude_bits >> 23;
        const Ints estimate = ((exponent << 2) + exponent + Map::kEstimate) >> 4;
        const Ints below = estimate > 0 ? estimate : Ints{};
        const Ints place = y >= look_up(map.next, below) ? below + 1 : below;
        const Floats exact = y * look_up(map.slope, place) + look_up(map.offset, place);
        const Floats last = look_up(map.last, place);
        const Ints inside = truncated(exact < last ? exact : last);
        const Ints u = share >= map.one ? inside + 1 : inside;  // the least share has no code of its own
        const Ints least = (kKeepSign ? 1 : 0) - Ints{};
        store_codes(to, share < 0.0F ? Map::kZeroCode - (u > least ? u : least) : Map::kZeroCode + u);
      });
}

ULP_INLINE Ints larger(Ints a, Ints b) {
  return a > b ? a : b;
}
ULP_INLINE Ints smaller(Ints a, Ints b) {
  return a < b ? a : b;
}
ULP_INLINE Ints bits_of(SquareLine line, Ints code) {
  return (code + line.less) << line.drop;
}
ULP_INLINE Ints code_of(SquareLine line, Ints bits) {
  return ((bits + (1 << (line.drop - 1))) >> line.drop) - line.less;
}
/// As decode_decades() and encode_decades(), of squares.
void decode_squares(const uint8_t* codes, float absmax, int64_t n, float* wide) {
  for_each_vector(
      codes, n, wide, [&](const uint8_t* from, float* to) __attribute__((always_inline)) {
        const Ints code = load_codes_of(from);
        const Ints bits = smaller(bits_of(SquareMap8::kFine, code), bits_of(SquareMap8::kCoarse, code));
        const Ints none{};
        *reinterpret_cast<StoredFloats*>(to) = reinterpret_cast<Floats>(code == 0 ? none : bits) * absmax;
      });
}
/// A square that is not 0 has no code 0, whatever its share.
void encode_squares(const float* wide, float inverse, int64_t n, uint8_t* codes) {
  for_each_vector(
      wide, n, codes, [&](const float* from, uint8_t* to) __attribute__((always_inline)) {
        const Floats square = *reinterpret_cast<const StoredFloats*>(from);
        const auto bits = reinterpret_cast<Ints>(square * inverse);
        const Ints code = larger(code_of(SquareMap8::kFine, bits), code_of(SquareMap8::kCoarse, bits));
        const Ints none{}, least = 1 - Ints{};
        store_codes(to, square > 0.0F ? larger(code, least) : none);
      });
}

/// Bytes to pairs of four bits, the even elements in the lower ones; behind an odd end are zeros.
void pack_nibbles(const uint8_t* codes, int64_t n, uint8_t* packed) {
  for (int64_t i = 0; i < n / 2; ++i) packed[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  if (n % 2 != 0) packed[n / 2] = codes[n - 1];
}
void unpack_nibbles(const uint8_t* packed, int64_t n, uint8_t* codes) {
  for (int64_t i = 0; i < n / 2; ++i) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
  if (n % 2 != 0) codes[n - 1] = packed[n / 2] & 15;
}

/// The largest magnitude; a NaN where one of the numbers is not finite.
float largest_magnitude(const float* wide, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<int32_t>(float_to_bits(wide[i]) & 0x7fffffffU);
    largest = bits > largest ? bits : largest;
  }
  return largest >= 0x7f800000 ? bits_to_float(0x7fc00000U) : bits_to_float(static_cast<uint32_t>(largest));
}

/// The ways of a block of moments: `decode` to numbers, `encode` those times the inverse of their absmax;
/// kBits a code. No absmax but 0 is below kLeastAbsmax, whose inverse is finite: squares of less get it, so
/// that they stay above 0, and others become 0.
struct SignedCodes8 {
  static constexpr int64_t kBlock = moment_block(MomentStore::int8), kBits = 8;
  static constexpr uint8_t kZeroCode = SignedMap8::kZeroCode;
  static constexpr bool kSquares = false;
  static constexpr float kLeastAbsmax = 0x1p-126F;
  static void decode(const uint8_t* codes, float absmax, int64_t n, float* wide) {
    decode_decades<SignedMap8>(codes, absmax, n, wide);
  }
  static void encode(const float* wide, float inverse, int64_t n, uint8_t* codes) {
    encode_decades<SignedMap8, true>(wide, inverse, n, codes);
  }
};
struct SquareCodes8 {
  static constexpr int64_t kBlock = moment_block(MomentStore::int8), kBits = 8;
  static constexpr uint8_t kZeroCode = 0;
  static constexpr bool kSquares = true;
  static constexpr float kLeastAbsmax = 0x1p-100F;  // times the least value it is not subnormal
  static void decode(const uint8_t* codes, float absmax, int64_t n, float* wide) {
    decode_squares(codes, absmax, n, wide);
  }
  static void encode(const float* wide, float inverse, int64_t n, uint8_t* codes) {
    encode_squares(wide, inverse, n, codes);
  }
};
struct SignedCodes4 {
  static constexpr int64_t kBlock = moment_block(MomentStore::int4), kBits = 4;
  static constexpr uint8_t kZeroCode = SignedMap4::kZeroCode * 17;  // of two elements
  static constexpr bool kSquares = false;
  static constexpr float kLeastAbsmax = 0x1p-126F;
  static void decode(const uint8_t* packed, float absmax, int64_t n, float* wide) {
    uint8_t codes[kBlock];
    unpack_nibbles(packed, n, codes);
    decode_decades<SignedMap4>(codes, absmax, n, wide);
  }
  static void encode(const float* wide, float inverse, int64_t n, uint8_t* packed) {
    uint8_t codes[kBlock];
    encode_decades<SignedMap4, false>(wide, inverse, n, codes);
    pack_nibbles(codes, n, packed);
  }
};
struct LinearCodes4 {
  static constexpr int64_t kBlock = moment_block(MomentStore::int4), kBits = 4;
  static constexpr uint8_t kZeroCode = 0;
  static constexpr bool kSquares = true;
  static constexpr float kLeastAbsmax = 0x1p-122F;
  static void decode(const uint8_t* packed, float absmax, int64_t n, float* wide) {
    uint8_t codes[kBlock];
    unpack_nibbles(packed, n, codes);
    for (int64_t i = 0; i < n; ++i) wide[i] = static_cast<float>(codes[i] + 1) * kLinearStep * absmax;
  }
  static void encode(const float* wide, float inverse, int64_t n, uint8_t* packed) {
    uint8_t codes[kBlock];
    for (int64_t i = 0; i < n; ++i) {
      const float sixteenths = wide[i] * inverse * (1 / kLinearStep);
      codes[i] = static_cast<uint8_t>(static_cast<int32_t>(sixteenths - 0.5F));
    }
    pack_nibbles(codes, n, packed);
  }
};

/// n moments whose codes and whose absmax begin where a block does.
template <typename Codes>
__attribute__((noinline)) void load_moments(const uint8_t* codes, const float* absmax, int64_t n,
                                            float* wide) {
  for (int64_t begin = 0; begin < n; begin += Codes::kBlock, ++absmax) {
    const int64_t size = n - begin < Codes::kBlock ? n - begin : Codes::kBlock;
    if (*absmax == 0.0F) {
      __builtin_memset(wide + begin, 0, static_cast<size_t>(size) * sizeof(float));
    } else {
      Codes::decode(codes + begin * Codes::kBits / 8, *absmax, size, wide + begin);
    }
  }
}
template <typename Codes>
__attribute__((noinline)) void store_moments(const float* wide, int64_t n, uint8_t* codes, float* absmax) {
  for (int64_t begin = 0; begin < n; begin += Codes::kBlock, ++absmax) {
    const int64_t size = n - begin < Codes::kBlock ? n - begin : Codes::kBlock;
    uint8_t* const own = codes + begin * Codes::kBits / 8;
    const float largest = largest_magnitude(wide + begin, size);
    const float least = Codes::kSquares && largest > 0.0F ? Codes::kLeastAbsmax : 0.0F;
    *absmax = largest < Codes::kLeastAbsmax ? least : largest;
    if (*absmax > 0.0F) {
      Codes::encode(wide + begin, 1 / *absmax, size, own);
    } else {
      __builtin_memset(own, Codes::kZeroCode, static_cast<size_t>((size * Codes::kBits + 7) / 8));
    }
  }
}

template <typename Codes>
constexpr MomentBlocks kBlocksOf = {load_moments<Codes>, store_moments<Codes>};

static_assert(SignedMap8::kZeroCode == zero_code(MomentStore::int8, MomentKind::mean));
static_assert(SignedMap4::kZeroCode == zero_code(MomentStore::int4, MomentKind::mean));
static_assert(SquareCodes8::kZeroCode == zero_code(MomentStore::int8, MomentKind::square));

/// For MomentStore::int8 and int4, and for each MomentKind.
constexpr MomentBlocks kMomentBlocks[2][2] = {{kBlocksOf<SignedCodes8>, kBlocksOf<SquareCodes8>},
                                              {kBlocksOf<SignedCodes4>, kBlocksOf<LinearCodes4>}};

#undef ULP_INLINE

}  // namespace
}  // namespace ulp::kernels
