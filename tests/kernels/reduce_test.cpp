// Reductions against plain loops in float64, on every instruction set, over every pattern of dimensions.
#include "ulp/kernels/reduce/reduce.h"

#include <cmath>
#include <limits>

#include "error_of.h"
#include "helpers.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;
using enum ReduceKind;

constexpr int64_t kReduceBatch = 3;

/// All results, each from the list of its numbers in the order of memory.
template <typename F>
std::vector<double> each_result(const std::vector<ReduceDimension>& dimensions, const std::vector<double>& x,
                                F f) {
  int64_t item = 1, kept = 1;
  for (const ReduceDimension& d : dimensions) {
    item *= d.size;
    if (!d.reduced) kept *= d.size;
  }
  std::vector<std::vector<double>> groups(static_cast<size_t>(kReduceBatch * kept));
  for (int64_t i = 0; i < kReduceBatch * item; ++i) {
    int64_t at = 0, step = 1, left = i % item;
    for (size_t d = dimensions.size(); d-- > 0; left /= dimensions[d].size) {
      if (dimensions[d].reduced) continue;
      at += left % dimensions[d].size * step;
      step *= dimensions[d].size;
    }
    groups[static_cast<size_t>(i / item * kept + at)].push_back(x[static_cast<size_t>(i)]);
  }
  std::vector<double> results;
  for (const std::vector<double>& group : groups) results.push_back(f(group));
  return results;
}

double plainly(ReduceKind kind, const std::vector<double>& x, double correction) {
  double sum = 0, product = 1, ones = 0, squares = 0, absolute = 0, exps = 0, differences = 0;
  const auto count = static_cast<double>(x.size());
  const auto top = std::max_element(x.begin(), x.end()), low = std::min_element(x.begin(), x.end());
  for (const double v : x) {
    sum += v;
    product *= v;
    ones += v != 0;
    squares += v * v;
    absolute += std::abs(v);
    exps += std::exp(v - *top);
  }
  for (const double v : x) differences += (v - sum / count) * (v - sum / count);
  switch (kind) {
    case ReduceKind::sum:
      return sum;
    case mean:
      return sum / count;
    case max:
      return *top;
    case min:
      return *low;
    case prod:
      return product;
    case var:
      return differences / (count - correction);
    case ReduceKind::std:
      return std::sqrt(differences / (count - correction));
    case norm1:
      return absolute;
    case norm2:
      return std::sqrt(squares);
    case norm_inf:
      return std::max(std::abs(*top), std::abs(*low));
    case argmax:
      return static_cast<double>(top - x.begin());
    case argmin:
      return static_cast<double>(low - x.begin());
    case any:
      return ones > 0;
    case all:
      return ones == count;
    default:
      return *top + std::log(exps);
  }
}

const std::vector<ReduceDimension> kReduceShapes[] = {
    {{37, true}},
    {{5, false}, {700, true}},
    {{9, true}, {70, false}},
    {{4, false}, {33, true}, {19, false}},
    {{3, true}, {5, false}, {20, true}},
    {{6, true}, {3, false}, {4, true}, {300, false}},
    {{1, true}, {1, false}},
    {{7, false}, {1, true}},
    {{2, true}, {5000, true}},
};

struct Kernel {
  ReduceKind kind;
  double relative;  // share of the result, beside one of the largest number summed
};

std::vector<float> run(const Reduce& reduce, const void* x, size_t results) {
  std::vector<float> first;
  for (const int workers : {1, 2}) {
    Guarded<float> y(static_cast<int64_t>(results));
    std::vector<float> scratch(reduce.workspace_bytes(workers) / sizeof(float) + 1);
    reduce.run(x, y.data(), kReduceBatch, scratch.data(), ThreadParallel(workers));
    EXPECT_TRUE(y.intact());
    if (first.empty()) first = y.values();
    // As bits: a NaN is no number equal to itself.
    EXPECT_EQ(std::memcmp(y.data(), first.data(), results * sizeof(float)), 0) << workers;
  }
  return first;
}

TEST(Reduce, EveryKindIsWithinRoundingOfFloat64AndTheSameEverywhere) {
  SCOPED_TRACE(repeat_command());
  for (const auto& [kind, text, help] : EnumNames<ReduceKind>::list) {
    for (const std::vector<ReduceDimension>& shape : kReduceShapes) {
      const bool place = kind == argmax || kind == argmin;
      if (place && std::ranges::count(shape, true, &ReduceDimension::reduced) != 1) continue;
      int64_t item = 1;
      for (const ReduceDimension& d : shape) item *= d.size;
      const bool large = kind == prod;  // else products leave the numbers
      const std::vector<float> x =
          random_floats(kReduceBatch * item, 5, large ? 0.95F : -2, large ? 1.05F : 3);
      const std::vector<double> wide(x.begin(), x.end());
      const std::vector<double> expected =
          each_result(shape, wide, [&, kind = kind](const auto& group) { return plainly(kind, group, 0.5); });
      std::vector<float> first;
      for (const Isa isa : available_isas()) {
        const std::vector<float> y =
            run(Reduce(kind, DataType::f32, {}, shape, 0.5F, isa), x.data(), expected.size());
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << text << ", " << to_string(isa);
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        const double bound = kind == logsumexp ? 4 * kUlp * (std::abs(expected[i]) + 1)
                                               : 2 * kUlp * std::abs(expected[i]) + 1e-12;
        EXPECT_LE(std::abs(first[i] - expected[i]), bound) << text << ", case " << &shape - kReduceShapes;
      }
    }
  }
}

TEST(Reduce, WidensBf16AndCodes) {
  const std::vector<ReduceDimension> shapes[] = {
      {{5000, true}}, {{30, true}, {300, false}}, {{40, false}, {9, true}}};
  for (const std::vector<ReduceDimension>& shape : shapes) {
    int64_t item = 1;
    for (const ReduceDimension& d : shape) item *= d.size;
    const auto codes = random_ints<uint8_t>(kReduceBatch * item, 1, 0, 255);
    std::vector<uint16_t> half;
    std::vector<float> from_codes, from_half;
    for (const uint8_t code : codes) {
      from_codes.push_back((static_cast<float>(code) - 100.0F) * 0.125F);
      half.push_back(float_to_bf16(from_codes.back()));
      from_half.push_back(bf16_to_float(half.back()));
    }
    for (const ReduceKind kind : {ReduceKind::sum, max, var, argmin}) {
      for (const Isa isa : available_isas()) {
        const size_t results =
            each_result(shape, std::vector<double>(codes.begin(), codes.end()), [](const auto&) {
              return 0.0;
            }).size();
        const auto wide = [&](const std::vector<float>& x) {
          return run(Reduce(kind, DataType::f32, {}, shape, 1, isa), x.data(), results);
        };
        EXPECT_EQ(run(Reduce(kind, DataType::u8, {0.125F, 100}, shape, 1, isa), codes.data(), results),
                  wide(from_codes));
        EXPECT_EQ(run(Reduce(kind, DataType::bf16, {}, shape, 1, isa), half.data(), results),
                  wide(from_half));
      }
    }
  }
}

TEST(Reduce, NaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const bool rows : {true, false}) {
    const std::vector<ReduceDimension> shape = rows ? std::vector<ReduceDimension>{{20, true}}
                                                    : std::vector<ReduceDimension>{{20, true}, {2, false}};
    const auto result = [&](ReduceKind kind, float special) {
      std::vector<float> x(static_cast<size_t>(kReduceBatch * (rows ? 20 : 40)), 1.0F);
      x[rows ? 7 : 14] = special;
      return run(Reduce(kind, DataType::f32, {}, shape, 0, available_isas().back()), x.data(),
                 static_cast<size_t>(kReduceBatch * (rows ? 1 : 2)))[0];
    };
    for (const ReduceKind kind : {max, min, norm_inf, ReduceKind::sum, logsumexp}) {
      EXPECT_TRUE(std::isnan(result(kind, nan))) << enum_name(kind);
    }
    EXPECT_EQ(result(argmax, nan), 7);
    EXPECT_EQ(result(argmin, nan), 7);
    EXPECT_EQ(result(argmax, inf), 7);
    EXPECT_EQ(result(argmax, 1), 0);
    EXPECT_EQ(result(logsumexp, inf), inf);
    EXPECT_EQ(result(any, nan), 1);
    EXPECT_EQ(result(all, 0), 0);
  }
}

TEST(Reduce, RefusesWhatItCannot) {
  EXPECT_ERROR(Reduce(ReduceKind::sum, DataType::i32, {}, {}, 0, Isa::portable), "f32, bf16 or u8, got i32");
  EXPECT_ERROR(Reduce(argmax, DataType::f32, {}, {{2, true}, {3, true}}, 0, Isa::portable), "one dimension");
}

TEST(Reduce, CumulativeProductsAreMultipliedInDouble) {
  const std::vector<float> x = {1e30F, 1e30F, 1e-30F, 1e-30F, 0.0F, kInf, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F};
  for (const int64_t inner : {1, 2}) {
    const int64_t size = 6, outer = 2 / inner;
    std::vector<float> y(x.size());
    cumulative_product(x.data(), y.data(), outer, size, inner, ThreadParallel(2));
    for (int64_t i = 0; i < outer * inner; ++i) {
      double product = 1;
      for (int64_t r = 0; r < size; ++r) {
        const auto at = static_cast<size_t>(i / inner * size * inner + r * inner + i % inner);
        product *= x[at];
        const auto want = static_cast<float>(product);
        ASSERT_TRUE(y[at] == want || (std::isnan(y[at]) && std::isnan(want))) << y[at] << " for " << want;
      }
    }
  }
}

TEST(Reduce, CumulativeSumsAndLogSoftmax) {
  const std::vector<float> x = random_floats(6 * 50 * 70, 3, -1, 1);
  for (const int64_t inner : {1, 7, 70}) {
    const int64_t size = 50, outer = 6 * 70 / inner;
    std::vector<float> y(x.size());
    cumulative_sum(x.data(), y.data(), outer, size, inner, ThreadParallel(2));
    for (int64_t i = 0; i < outer * inner; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < size; ++r) {
        const auto at = static_cast<size_t>(i / inner * size * inner + r * inner + i % inner);
        sum += x[at];
        ASSERT_EQ(y[at], static_cast<float>(sum));
      }
    }
  }
  for (const Isa isa : available_isas()) {
    std::vector<float> y(x.size());
    log_softmax(x.data(), y.data(), 300, 70, isa, ThreadParallel(2));
    for (size_t r = 0; r < 300; ++r) {
      double sum = 0;
      for (size_t i = 0; i < 70; ++i) sum += std::exp(double{x[r * 70 + i]});
      for (size_t i = 0; i < 70; ++i) ASSERT_NEAR(y[r * 70 + i], x[r * 70 + i] - std::log(sum), 1e-6);
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
