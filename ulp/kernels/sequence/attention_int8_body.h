// One head of attention on codes: two products of 16-bit integers, exact in 32 bits, with a softmax in f32
// between them, whose numbers are rounded to 15 bits. Included once by a file per instruction set, which
// names its function with ULP_HEAD. No sum of floats depends on the width of a vector: the same bits
// everywhere.
#include "ulp/kernels/sequence/attention_parts.h"

namespace ulp::kernels {
namespace {

typedef int32_t IntVector __attribute__((vector_size(ULP_VECTOR_BYTES)));
/// What is written as integers and read as lanes of four bytes.
typedef int16_t StoredShort __attribute__((may_alias));
typedef int32_t StoredInt __attribute__((may_alias));

/// Keys whose weighted values fit in 32 bits: 256 * 32767 * 255 < 2^31.
constexpr int64_t kKeyBlock = 256;
/// Keys lie transposed in panels so wide: a step of a product reads one run of memory.
constexpr int64_t kPanel = ULP_TILE_VECTORS * kVector > kRowPad ? ULP_TILE_VECTORS* kVector : kRowPad;

/// Two products a lane, of the 16-bit halves of 32-bit integers, which lie where FloatStep has floats.
struct CodeStep {
  static Vector add(Vector sum, float a, Vector b) {
#if ULP_VECTOR_BYTES == 64
    const __m512i pair = _mm512_castps_si512(_mm512_set1_ps(a));
    return reinterpret_cast<Vector>(
        _mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum), pair, reinterpret_cast<__m512i>(b)));
#elif ULP_VECTOR_BYTES == 32
    const __m256i pair = _mm256_castps_si256(_mm256_set1_ps(a));
    const __m256i both = _mm256_madd_epi16(pair, reinterpret_cast<__m256i>(b));
    return reinterpret_cast<Vector>(reinterpret_cast<IntVector>(sum) + reinterpret_cast<IntVector>(both));
#else
    uint32_t bits;
    __builtin_memcpy(&bits, &a, sizeof(bits));
    const int32_t low = static_cast<int16_t>(bits), high = static_cast<int16_t>(bits >> 16);
    const auto pairs = reinterpret_cast<Lanes::Bits>(b);
    const auto lows = reinterpret_cast<IntVector>(pairs << 16) >> 16;
    const auto highs = reinterpret_cast<IntVector>(pairs) >> 16;
    return reinterpret_cast<Vector>(reinterpret_cast<IntVector>(sum) + lows * low + highs * high);
#endif
  }
};

/// Codes less their zero point; one more, 0, where their number is odd.
void widen(const uint8_t* codes, int64_t n, int32_t zero, StoredShort* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int16_t>(codes[i] - zero);
  if (n % 2 != 0) to[n] = 0;
}

/// to[d] = the pair (first[d], second[d]); a second row that is null counts as zeros.
void pair_rows(const uint8_t* first, const uint8_t* second, int64_t depth, int32_t zero, StoredInt* to) {
  if (second == nullptr) {
    for (int64_t d = 0; d < depth; ++d) to[d] = (first[d] - zero) & 0xffff;
  } else {
    for (int64_t d = 0; d < depth; ++d)
      to[d] =
          ((first[d] - zero) & 0xffff) | static_cast<int32_t>(static_cast<uint32_t>(second[d] - zero) << 16);
  }
  for (int64_t d = depth; d < pad_row(depth); ++d) to[d] = 0;
}

const float* as_lanes(const StoredShort* numbers) {
  return reinterpret_cast<const float*>(numbers);
}

/// Keys of a head in panels, transposed: panel[pair of a depth][key].
void transpose_codes(const HeadCodesArgs& h, float* rows, float* panels) {
  const int64_t keys = pad_row(h.keys), half = (h.depth + 1) / 2;
  for (int64_t first = 0; first < keys; first += kRowPad) {
    const int64_t count = h.keys - first < kRowPad ? h.keys - first : kRowPad;
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* from = h.k + (first + i) * h.kv_stride;
      prefetch_lines(from + h.depth, h.depth);  // the next head's part
      widen(from, h.depth, h.key_zero, reinterpret_cast<StoredShort*>(rows + i * half));
    }
    const int64_t panel = first / kPanel * kPanel;
    const int64_t width = keys - panel < kPanel ? keys - panel : kPanel;
    transpose_keys(rows, half, half, count, panels + panel * half + (first - panel), width);
  }
}

/// 2^t for t <= 0 in steps of 1 / 32767, rounded half to even: 32767 where t is 0. A polynomial of degree 5,
/// off by 0.005 steps.
inline __attribute__((always_inline)) IntVector weights_of(Vector t) {
  constexpr float kMagic =
      12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to an integer in its last bits
  constexpr float kSteps[] = {22712.34765625F, 7871.3681640625F, 1818.8089599609375F, 316.9064636230469F,
                              43.46453094482422F};
  const Vector least = -17.0F - Vector{};  // a quarter of a step
  const Vector bounded = t > least ? t : least, moved = bounded + kMagic;
  const Vector f = bounded - (moved - kMagic);
  Vector p = kSteps[4] * f + kSteps[3];
  p = p * f + kSteps[2];
  p = p * f + kSteps[1];
  p = p * f + kSteps[0];
  p = p * f + 32767.0F;
  const IntVector scaled = reinterpret_cast<IntVector>(p) +
                           reinterpret_cast<IntVector>(reinterpret_cast<Lanes::Bits>(moved) << 23);
  return reinterpret_cast<IntVector>(reinterpret_cast<Vector>(scaled) + kMagic) - 0x4b400000;
}

typedef int32_t StoredInts __attribute__((vector_size(ULP_VECTOR_BYTES), aligned(4), may_alias));
typedef int16_t StoredShorts __attribute__((vector_size(ULP_VECTOR_BYTES / 2), aligned(2), may_alias));

/// The sum of any number of vectors of weights.
class WeightSum {
 public:
  void add(IntVector weights) {
    lanes_ += weights;
    if (--left_ == 0) flush();
  }
  uint64_t total() {
    flush();
    return sum_;
  }

 private:
  static constexpr int64_t kMost = 65536;  // weights of 32767 that fit in a lane
  void flush() {
    for (int l = 0; l < kVector; ++l) sum_ += static_cast<uint32_t>(lanes_[l]);
    lanes_ = IntVector{};
    left_ = kMost;
  }
  IntVector lanes_ = {};
  int64_t left_ = kMost;
  uint64_t sum_ = 0;
};

/// Weights of n keys from integers: 2^(step * (integer - the largest)). Differences fit in 32 bits, see
/// kLargestCodesDepth.
uint64_t weigh_integers(StoredInt* integers, float step, int64_t n, StoredShort* weights) {
  for (int64_t i = n; i < pad_row(n); ++i) integers[i] = integers[0];
  IntVector most = *reinterpret_cast<const StoredInts*>(integers);
  for (int64_t i = kVector; i < pad_row(n); i += kVector) {
    const IntVector one = *reinterpret_cast<const StoredInts*>(integers + i);
    most = one > most ? one : most;
  }
  int32_t largest = most[0];
  for (int l = 1; l < kVector; ++l) largest = most[l] > largest ? most[l] : largest;
  WeightSum sums;
  for (int64_t i = 0; i < pad_row(n); i += kVector) {
    const IntVector below = *reinterpret_cast<const StoredInts*>(integers + i) - largest;
    const IntVector made = weights_of(__builtin_convertvector(below, Vector) * step);
    *reinterpret_cast<StoredShorts*>(weights + i) = __builtin_convertvector(made, StoredShorts);
    sums.add(made);
  }
  uint64_t sum = sums.total();
  for (int64_t i = n; i < pad_row(n); ++i) {
    sum -= static_cast<uint64_t>(weights[i]);
    weights[i] = 0;
  }
  return sum;
}

/// A number of the mask as an exponent of 2. One that is finite stays so: where all keys have the lowest
/// number, none is left out.
inline float in_twos(float mask) {
  constexpr float kLog2E = 1.44269504F, kLargest = 3.402823466e38F;
  const float exponent = mask * kLog2E;
  return exponent < -kLargest && mask >= -kLargest ? -kLargest : exponent;
}

/// The same from scores in units of 2, -infinity up to pad_row(n), and the largest of them.
uint64_t weigh_scores(const float* scores, float largest, int64_t n, StoredShort* weights) {
  WeightSum sums;
  for (int64_t i = 0; i < pad_row(n); i += kVector) {
    const IntVector made = weights_of(load(scores + i) - largest);
    *reinterpret_cast<StoredShorts*>(weights + i) = __builtin_convertvector(made, StoredShorts);
    sums.add(made);
  }
  return sums.total();
}

/// The sum of the weights of the keys from `first` on; those before weigh nothing. Keys before `first` have
/// the integer of that one.
float weigh_from(StoredInt* integers, float step, SeenKeys seen, StoredShort* weights) {
  for (int64_t i = 0; i < seen.first; ++i) integers[i] = integers[seen.first];
  uint64_t sum = weigh_integers(integers, step, seen.last, weights);
  for (int64_t i = 0; i < seen.first; ++i) {
    sum -= static_cast<uint64_t>(weights[i]);
    weights[i] = 0;
  }
  return static_cast<float>(sum);
}

/// Weights of keys from their products of codes, which may become scores on the way; zeros before the first
/// that is seen and up to pad_row(last). Returns the sum of the weights: 0 when every key is masked, NaN when
/// a score is no number or infinite.
float weigh(float* products, const HeadCodesArgs& h, SeenKeys seen, StoredShort* weights) {
  constexpr float kInfinity = __builtin_inff(), kLog2E = 1.44269504F;
  auto* integers = reinterpret_cast<StoredInt*>(products);
  const float step = h.scale * kLog2E;
  const int64_t n = seen.last;
  if (h.mask == nullptr && step > 0 && step < kInfinity && h.softcap == 0 && seen.first < n)
    return weigh_from(integers, step, seen, weights);
  if (h.softcap > 0) {
    const float inner = h.scale / h.softcap, outer = h.softcap * kLog2E;
    for (int64_t i = 0; i < n; ++i)
      products[i] = outer * tanh_of_score(static_cast<float>(integers[i]) * inner);
  } else {
    for (int64_t i = 0; i < n; ++i) products[i] = static_cast<float>(integers[i]) * step;
  }
  for (int64_t i = 0; h.mask != nullptr && i < n; ++i) products[i] += in_twos(h.mask[i]);
  for (int64_t i = 0; i < seen.first; ++i) products[i] = -kInfinity;
  for (int64_t i = n; i < pad_row(n); ++i) products[i] = -kInfinity;
  Lanes part, lanes;
  fill(lanes, -kInfinity);
  for (int64_t i = 0; i < n; i += Lanes::kCount) {
    load(part, products + i);
    take_larger(lanes, part);
  }
  const float largest = largest_of(lanes);
  if (largest > -kInfinity && largest < kInfinity)
    return static_cast<float>(weigh_scores(products, largest, n, weights));
  for (int64_t i = 0; i < pad_row(n); ++i) weights[i] = 0;
  return largest == -kInfinity ? 0.0F : __builtin_nanf("");
}

/// mixed = weights times values, kKeyBlock keys at a time; `weights` and `values` in pairs of keys.
void mix(const Product& product, int64_t rows, float* integers) {
  const int64_t columns = product.b_stride;
  for (int64_t first = 0; first < product.depth; first += kKeyBlock / 2) {
    const int64_t left = product.depth - first;
    multiply<CodeStep>({product.a + first, product.a_stride, product.b + first * columns, columns, integers,
                        columns, left < kKeyBlock / 2 ? left : kKeyBlock / 2},
                       rows, columns);
    const auto* made = reinterpret_cast<const StoredInt*>(integers);
    if (first == 0) {
      for (int64_t i = 0; i < rows * columns; ++i) product.c[i] = static_cast<float>(made[i]);
    } else {
      for (int64_t i = 0; i < rows * columns; ++i) product.c[i] += static_cast<float>(made[i]);
    }
  }
}

void head(const HeadCodesArgs& h) {
  const int64_t keys = pad_row(h.keys), depth = pad_row(h.depth), half = (h.depth + 1) / 2;
  float* panels = h.scratch;
  float* values = panels + half * keys;
  float* queries = values + keys / 2 * depth;
  float* rows_of_keys = queries + kQueryBlock * half;
  float* scores = rows_of_keys + kRowPad * half;
  float* integers = scores + kQueryBlock * keys;
  float* mixed = integers + kQueryBlock * depth;
  auto* weights = reinterpret_cast<StoredShort*>(mixed + kQueryBlock * depth);
  transpose_codes(h, rows_of_keys, panels);
  for (int64_t key = 0; key < h.keys; key += 2) {
    const uint8_t* from = h.v + key * h.kv_stride;
    const uint8_t* second = key + 1 < h.keys ? from + h.kv_stride : nullptr;
    prefetch_lines(from + h.depth, h.depth);
    if (second != nullptr) prefetch_lines(second + h.depth, h.depth);
    pair_rows(from, second, h.depth, h.value_zero, reinterpret_cast<StoredInt*>(values + key / 2 * depth));
  }
  for (int64_t first = 0; first < h.queries; first += kQueryBlock) {
    const int64_t rows = h.queries - first < kQueryBlock ? h.queries - first : kQueryBlock;
    const int64_t last = h.earlier + first + rows;
    const int64_t seen = h.causal && last < h.keys ? last : h.keys;  // by the last of these queries
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* from = h.q + (first + r) * h.stride;
      prefetch_lines(from + h.depth, h.depth);
      widen(from, h.depth, h.query_zero, reinterpret_cast<StoredShort*>(queries + r * half));
    }
    for (int64_t key = 0; key < seen; key += kPanel) {
      const int64_t width = keys - key < kPanel ? keys - key : kPanel;
      multiply<CodeStep>({queries, half, panels + key * half, width, scores + key, keys, half}, rows, width);
    }
    float sums[kQueryBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const SeenKeys mine = seen_keys(h, first + r);
      sums[r] = weigh(scores + r * keys, h, mine, weights + r * keys) / h.value_scale;
      for (int64_t i = pad_row(mine.last); i < pad_row(seen); ++i) weights[r * keys + i] = 0;
    }
    mix({as_lanes(weights), keys / 2, values, depth, mixed, depth, (seen + 1) / 2}, rows, integers);
    divide_rows(mixed, depth, sums, rows, h.depth, h.y + first * h.y_stride, h.y_stride);
  }
}

}  // namespace

extern const HeadCodesFn ULP_HEAD;
const HeadCodesFn ULP_HEAD = head;

}  // namespace ulp::kernels
