// Layer norm, curves and attention against float64.
#include "ulp/kernels/elementwise/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "exact_activation.h"
#include "helpers.h"
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/sequence/attention.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;
using ulp::test::exact_activation;

constexpr double kUlp = 0x1p-24;

TEST(Rows, LayerNormIsWithinRoundingOfFloat64AndTheSameEverywhere) {
  for (const int64_t n : {1, 3, 16, 31, 128, 769}) {
    constexpr int64_t kRows = 5;
    const auto x = random_floats(kRows * n, 1, -2, 6), w = random_floats(n, 2), b = random_floats(n, 3);
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      Guarded<float> y(kRows * n);
      layer_norm({.columns = n, .input = {}, .output = {}, .epsilon = 1e-5F}, x.data(), w.data(), b.data(),
                 y.data(), kRows, nullptr, isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      const std::vector<float> got = y.values();
      if (first.empty()) first = got;
      EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0) << to_string(isa) << " " << n;
    }
    for (int64_t r = 0; r < kRows; ++r) {
      double mean = 0, variance = 0, magnitude = 0;
      for (int64_t i = 0; i < n; ++i) mean += x[static_cast<size_t>(r * n + i)] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        const double v = x[static_cast<size_t>(r * n + i)];
        variance += (v - mean) * (v - mean) / static_cast<double>(n);
        magnitude = std::max(magnitude, std::abs(v));
      }
      const double factor = 1 / std::sqrt(variance + double{1e-5F});
      // The mean of n numbers in 16 lanes is off by n / 16 + 16 roundings at most, the rest by a few.
      const double bound = (static_cast<double>(n) / 16 + 24) * kUlp * (magnitude * factor + 1) * 3;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(r * n + i), c = static_cast<size_t>(i);
        EXPECT_NEAR(first[at], (x[at] - mean) * factor * w[c] + b[c], bound) << n << " element " << at;
      }
    }
  }
}

TEST(Rows, LayerNormWithoutWeightOrBias) {
  const auto x = random_floats(40, 1), w = random_floats(20, 2);
  const std::vector<float> zeros(20), ones(20, 1.0F);
  for (const Isa isa : available_isas()) {
    const auto run = [&](const float* weight, const float* bias) {
      std::vector<float> y(40);
      layer_norm({.columns = 20, .input = {}, .output = {}, .epsilon = 1e-5F}, x.data(), weight, bias,
                 y.data(), 2, nullptr, isa, SerialParallel());
      return y;
    };
    EXPECT_EQ(run(nullptr, nullptr), run(ones.data(), zeros.data()));
    EXPECT_EQ(run(w.data(), nullptr), run(w.data(), zeros.data()));
    EXPECT_EQ(run(nullptr, w.data()), run(ones.data(), w.data()));
  }
}

// What is no f32 is widened before and rounded behind the same arithmetic.
TEST(Rows, LayerNormOfOtherTypesIsThatOfTheirNumbersRounded) {
  constexpr int64_t kRows = 7;
  for (const int64_t n : {3, 33, 257}) {
    const auto x = random_floats(kRows * n, 1, -3, 3), w = random_floats(n, 2), b = random_floats(n, 3);
    for (const ElementFormat& input : element_formats()) {
      for (const ElementFormat& output : element_formats()) {
        const LayerNormShape shape{.columns = n, .input = input, .output = output, .epsilon = 1e-5F};
        TypedBuffer from(input, x);
        std::vector<float> made(x.size());
        layer_norm({.columns = n, .input = {}, .output = {}, .epsilon = 1e-5F}, from.values().data(),
                   w.data(), b.data(), made.data(), kRows, nullptr, Isa::portable, SerialParallel());
        const TypedBuffer expected(output, made);
        for (const Isa isa : available_isas()) {
          TypedBuffer to(output, std::vector<float>(x.size()));
          Workspace workspace(layer_norm_workspace_bytes(shape, 2));
          layer_norm(shape, from.data(), w.data(), b.data(), to.data(), kRows, workspace.data(), isa,
                     ThreadParallel(2));
          EXPECT_EQ(to.bytes(), expected.bytes()) << to_string(isa) << " " << to_string(input.type) << " to "
                                                  << to_string(output.type) << "; " << repeat_command();
        }
      }
    }
  }
}

TEST(Rows, CurvesAreWithinTheirBoundsAndTheSameEverywhere) {
  std::vector<float> x;
  for (int i = -60000; i <= 60000; ++i) x.push_back(static_cast<float>(i) * 2e-4F);
  for (const float special : {0.0F, -0.0F, 1e-30F, -1e30F, 1e30F}) x.push_back(special);
  const auto n = static_cast<int64_t>(x.size());
  for (const Activation curve : ulp::test::all_curves()) {
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      Guarded<float> y(n);
      activate(DataType::f32, curve, x.data(), y.data(), n, {}, isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      if (first.empty()) first = y.values();
      EXPECT_EQ(std::memcmp(first.data(), y.data(), first.size() * 4), 0) << to_string(isa);
    }
    const bool bounded = std::abs(exact_activation(curve, 1e30)) <= 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], unit = bounded ? 1.0 : std::abs(v);
      ASSERT_NEAR(first[i], exact_activation(curve, v), 0x1p-22 * unit)
          << ulp::to_string(curve) << " at " << v;
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float y = 0;
    activate(DataType::f32, curve, &nan, &y, 1, {}, Isa::portable, SerialParallel());
    EXPECT_TRUE(std::isnan(y)) << ulp::to_string(curve);
  }
}

struct AttentionCase {
  AttentionShape shape;
  int64_t batch;
  bool mask;
};

/// Softmax attention in float64.
std::vector<double> attend_plainly(const AttentionCase& c, const std::vector<float>& q,
                                   const std::vector<float>& k, const std::vector<float>& v,
                                   const std::vector<float>& mask) {
  const AttentionShape& s = c.shape;
  const int64_t width = s.heads * s.depth;
  std::vector<double> y(static_cast<size_t>(c.batch * s.queries * width));
  const auto at = [&](int64_t item, int64_t rows, int64_t row, int64_t head, int64_t d) {
    return static_cast<size_t>(((item * rows + row) * s.heads + head) * s.depth + d);
  };
  for (int64_t item = 0; item < c.batch; ++item) {
    for (int64_t head = 0; head < s.heads; ++head) {
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> p(static_cast<size_t>(s.keys));
        double sum = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          double score = 0;
          for (int64_t d = 0; d < s.depth; ++d) {
            score += double{q[at(item, s.queries, i, head, d)]} * k[at(item, s.keys, j, head, d)];
          }
          score = score * s.scale + (c.mask ? mask[static_cast<size_t>(item * s.keys + j)] : 0.0);
          p[static_cast<size_t>(j)] = s.causal && j > i ? 0.0 : std::exp(score);
          sum += p[static_cast<size_t>(j)];
        }
        for (int64_t d = 0; d < s.depth; ++d) {
          double mixed = 0;
          for (int64_t j = 0; j < s.keys; ++j) {
            mixed += p[static_cast<size_t>(j)] * v[at(item, s.keys, j, head, d)];
          }
          y[at(item, s.queries, i, head, d)] = sum == 0 ? 0 : mixed / sum;
        }
      }
    }
  }
  return y;
}

TEST(Attention, IsWithinRoundingOfFloat64) {
  const AttentionCase cases[] = {
      {{1, 1, 1, 1, 1.0F, false}, 1, false},   {{2, 64, 128, 128, 0.125F, false}, 2, true},
      {{3, 5, 7, 19, 0.5F, false}, 2, true},   {{4, 32, 50, 50, 0.25F, true}, 1, false},
      {{1, 17, 1, 33, 0.3F, false}, 3, false}, {{2, 80, 25, 16, 0.1F, true}, 1, true}};
  for (const AttentionCase& c : cases) {
    const int64_t width = c.shape.heads * c.shape.depth;
    const auto q = random_floats(c.batch * c.shape.queries * width, 1, -2, 2);
    const auto k = random_floats(c.batch * c.shape.keys * width, 2, -2, 2);
    const auto v = random_floats(c.batch * c.shape.keys * width, 3, -2, 2);
    std::vector<float> mask(static_cast<size_t>(c.batch * c.shape.keys));
    for (size_t i = 0; i < mask.size(); ++i) {
      if (i % 3 == 1) mask[i] = -std::numeric_limits<float>::infinity();
    }
    // The last item sees no key at all.
    if (c.batch > 1) std::fill(mask.end() - c.shape.keys, mask.end(), mask.size() > 1 ? mask[1] : 0.0F);
    const std::vector<double> expected = attend_plainly(c, q, k, v, mask);
    // A score of `depth` products is off by their roundings; e^score and the weighted mean pass that on.
    const double score = static_cast<double>(c.shape.depth) * 4 * c.shape.scale;
    const double bound =
        2 * kUlp *
        (2 * (static_cast<double>(c.shape.depth) + 4) * (score + 1) + static_cast<double>(c.shape.keys) + 16);
    for (const Isa isa : available_isas()) {
      for (const int workers : {1, 3}) {
        Guarded<float> y(static_cast<int64_t>(expected.size()));
        std::vector<float> memory(attention_workspace_bytes(c.shape, workers) / 4 + 16);
        float* workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4 % 16;
        attention(c.shape, c.batch, q.data(), k.data(), v.data(), c.mask ? mask.data() : nullptr, y.data(),
                  workspace, isa, ThreadParallel(workers));
        EXPECT_TRUE(y.intact());
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(y.data()[i], expected[i], bound)
              << to_string(isa) << " element " << i << " of " << c.shape.queries << "x" << c.shape.keys
              << "; " << repeat_command();
        }
      }
    }
  }
}

TEST(Attention, OfOtherTypesIsThatOfTheirNumbersRounded) {
  AttentionShape shape{.heads = 3, .depth = 20, .queries = 30, .keys = 41, .scale = 0.2F, .causal = true};
  constexpr int64_t kBatch = 2;
  const auto q = random_floats(kBatch * 30 * 60, 1, -2, 2), k = random_floats(kBatch * 41 * 60, 2, -2, 2),
             v = random_floats(kBatch * 41 * 60, 3, -2, 2);
  for (const Isa isa : available_isas()) {
    const auto run = [&](const void* queries, const void* keys, const void* values, void* y) {
      Workspace workspace(attention_workspace_bytes(shape, 3));
      attention(shape, kBatch, queries, keys, values, nullptr, y, workspace.data(), isa, ThreadParallel(3));
    };
    for (const ElementFormat& input : element_formats()) {
      for (const ElementFormat& output : element_formats()) {
        TypedBuffer queries(input, q), keys(input, k), values(input, v);
        TypedBuffer to(output, std::vector<float>(q.size()));
        shape.input = shape.output = {};
        std::vector<float> made(q.size());
        run(queries.values().data(), keys.values().data(), values.values().data(), made.data());
        shape.input = input;
        shape.output = output;
        run(queries.data(), keys.data(), values.data(), to.data());
        if (attention_in_bf16(shape, isa)) continue;  // the next test
        EXPECT_EQ(to.bytes(), TypedBuffer(output, made).bytes())
            << to_string(isa) << " " << to_string(input.type) << " to " << to_string(output.type) << "; "
            << repeat_command();
      }
    }
  }
}

TEST(Attention, InBf16IsWithinTheRoundingOfItsSoftmax) {
  const AttentionCase cases[] = {
      {{2, 64, 128, 128, 0.125F, false}, 2, true}, {{3, 6, 7, 19, 0.5F, false}, 2, true},
      {{4, 32, 50, 50, 0.25F, true}, 1, false},    {{1, 18, 1, 33, 0.3F, false}, 3, false},
      {{2, 80, 25, 16, 0.1F, true}, 1, true},      {{1, 2, 3, 1, 1.0F, false}, 1, false}};
  const ElementFormat bf16{.type = DataType::bf16};
  for (AttentionCase c : cases) {
    c.shape.input = bf16;
    const int64_t width = c.shape.heads * c.shape.depth;
    TypedBuffer q(bf16, random_floats(c.batch * c.shape.queries * width, 1, -2, 2));
    TypedBuffer k(bf16, random_floats(c.batch * c.shape.keys * width, 2, -2, 2));
    TypedBuffer v(bf16, random_floats(c.batch * c.shape.keys * width, 3, -2, 2));
    std::vector<float> mask(static_cast<size_t>(c.batch * c.shape.keys));
    for (size_t i = 0; i < mask.size(); ++i) {
      if (i % 3 == 1) mask[i] = -std::numeric_limits<float>::infinity();
    }
    const std::vector<double> expected = attend_plainly(c, q.values(), k.values(), v.values(), mask);
    for (const Isa isa : available_isas()) {
      Guarded<float> y(static_cast<int64_t>(expected.size()));
      Workspace workspace(attention_workspace_bytes(c.shape, 2));
      attention(c.shape, c.batch, q.data(), k.data(), v.data(), c.mask ? mask.data() : nullptr, y.data(),
                workspace.data(), isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      // Each weight of the mean is off by half a step of 8 bits, of values of at most 2.
      const double bound = attention_in_bf16(c.shape, isa) ? 2.1 * 0x1p-9 : 1e-4;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(y.data()[i], expected[i], bound)
            << to_string(isa) << " element " << i << " of " << c.shape.queries << "x" << c.shape.keys << "; "
            << repeat_command();
      }
    }
  }
}

TEST(Attention, OfANaNIsNaN) {
  for (const Isa isa : available_isas()) {
    for (const int64_t keys : {1, 5, 16, 17}) {
      const AttentionShape shape{.heads = 1, .depth = 3, .queries = 2, .keys = keys, .scale = 0.5F};
      auto q = random_floats(6, 1, -2, 2);
      const auto k = random_floats(keys * 3, 2, -2, 2), v = random_floats(keys * 3, 3, -2, 2);
      q[1] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> y(6);
      Workspace workspace(attention_workspace_bytes(shape, 1));
      attention(shape, 1, q.data(), k.data(), v.data(), nullptr, y.data(), workspace.data(), isa,
                ThreadParallel(1));
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(std::isnan(y[i]), i < 3) << to_string(isa) << ", " << keys << " keys, element " << i;
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
