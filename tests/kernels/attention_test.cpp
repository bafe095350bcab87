// Attention against float64: of numbers, and of codes.
#include "ulp/kernels/sequence/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "helpers.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct AttentionCase {
  AttentionShape shape;
  int64_t batch;
  bool mask;
};

/// Numbers of a row of keys.
int64_t kv_width(const AttentionShape& shape) {
  return (shape.kv_heads > 0 ? shape.kv_heads : shape.heads) * shape.depth;
}

/// Softmax attention in float64.
std::vector<double> attend_plainly(const AttentionCase& c, const std::vector<float>& q,
                                   const std::vector<float>& k, const std::vector<float>& v,
                                   const std::vector<float>& mask) {
  const AttentionShape& s = c.shape;
  const int64_t width = s.heads * s.depth, kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads;
  std::vector<double> y(static_cast<size_t>(c.batch * s.queries * width));
  const auto at = [&](int64_t item, int64_t rows, int64_t row, int64_t head, int64_t d) {
    return static_cast<size_t>(((item * rows + row) * s.heads + head) * s.depth + d);
  };
  const auto key_at = [&](int64_t item, int64_t row, int64_t head, int64_t d) {
    const int64_t own = head / (s.heads / kv_heads);
    return static_cast<size_t>(((item * s.keys + row) * kv_heads + own) * s.depth + d);
  };
  for (int64_t item = 0; item < c.batch; ++item) {
    for (int64_t head = 0; head < s.heads; ++head) {
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> p(static_cast<size_t>(s.keys));
        double sum = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          double score = 0;
          for (int64_t d = 0; d < s.depth; ++d) {
            score += double{q[at(item, s.queries, i, head, d)]} * k[key_at(item, j, head, d)];
          }
          score *= s.scale;
          if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
          if (c.mask) score += mask[static_cast<size_t>(item * s.keys + j)];
          const int64_t own = s.earlier + i;
          const bool hidden = s.causal && (j > own || (s.window > 0 && j <= own - s.window));
          p[static_cast<size_t>(j)] = hidden ? 0.0 : std::exp(score);
          sum += p[static_cast<size_t>(j)];
        }
        for (int64_t d = 0; d < s.depth; ++d) {
          double mixed = 0;
          for (int64_t j = 0; j < s.keys; ++j) {
            mixed += p[static_cast<size_t>(j)] * v[key_at(item, j, head, d)];
          }
          y[at(item, s.queries, i, head, d)] = sum == 0 ? 0 : mixed / sum;
        }
      }
    }
  }
  return y;
}

TEST(Attention, IsWithinRoundingOfFloat64) {
  const AttentionCase cases[] = {{{1, 1, 1, 1, 1.0F, false}, 1, false},
                                 {{2, 64, 128, 128, 0.125F, false}, 2, true},
                                 {{3, 5, 7, 19, 0.5F, false}, 2, true},
                                 {{4, 32, 50, 50, 0.25F, true}, 1, false},
                                 {{1, 17, 1, 33, 0.3F, false}, 3, false},
                                 {{2, 80, 25, 16, 0.1F, true}, 1, true},
                                 {{2, 32, 50, 50, 0.25F, true, 0, 0, 0, 7}, 1, false},
                                 {{1, 8, 30, 70, 0.3F, true, 40, 0, 0, 21}, 2, false},
                                 {{4, 8, 5, 20, 0.3F, true, 15, 0, 2, 1}, 1, false},
                                 {{1, 8, 5, 20, 0.3F, true, 15, 0, 0, 99}, 1, false},
                                 {{1, 8, 9, 3, 0.3F, true, 2, 0, 0, 4}, 1, false},
                                 {{6, 16, 40, 40, 0.3F, true, 0, 0, 2}, 2, true},
                                 {{2, 16, 40, 40, 0.3F, true, 0, 0, 1, 0, 1.5F}, 2, true},
                                 {{4, 10, 1, 300, 0.4F, true, 299, 0, 2, 60, 3}, 1, false}};
  for (const AttentionCase& c : cases) {
    const int64_t width = c.shape.heads * c.shape.depth, rows = c.batch * c.shape.keys;
    const auto q = random_floats(c.batch * c.shape.queries * width, 1, -2, 2);
    const auto k = random_floats(rows * kv_width(c.shape), 2, -2, 2);
    const auto v = random_floats(rows * kv_width(c.shape), 3, -2, 2);
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
        shape.query = shape.key = shape.value = shape.output = {};
        std::vector<float> made(q.size());
        run(queries.values().data(), keys.values().data(), values.values().data(), made.data());
        shape.query = shape.key = shape.value = input;
        shape.output = output;
        run(queries.data(), keys.data(), values.data(), to.data());
        if (attention_in_bf16(shape, isa) || attention_in_int8(shape)) continue;  // the next tests
        EXPECT_EQ(to.bytes(), TypedBuffer(output, made).bytes())
            << to_string(isa) << " " << to_string(input.type) << " to " << to_string(output.type) << "; "
            << repeat_command();
      }
    }
  }
}

TEST(Attention, InBf16IsWithinTheRoundingOfItsSoftmax) {
  const AttentionCase cases[] = {{{2, 64, 128, 128, 0.125F, false}, 2, true},
                                 {{3, 6, 7, 19, 0.5F, false}, 2, true},
                                 {{4, 32, 50, 50, 0.25F, true}, 1, false},
                                 {{1, 18, 1, 33, 0.3F, false}, 3, false},
                                 {{2, 80, 25, 16, 0.1F, true}, 1, true},
                                 {{1, 2, 3, 1, 1.0F, false}, 1, false},
                                 {{2, 32, 50, 50, 0.25F, true, 0, 0, 1, 7}, 1, false},
                                 {{4, 8, 30, 70, 0.3F, true, 40, 0, 2, 21, 1.5F}, 2, false}};
  const ElementFormat bf16{.type = DataType::bf16};
  for (AttentionCase c : cases) {
    c.shape.query = c.shape.key = c.shape.value = bf16;
    const int64_t width = c.shape.heads * c.shape.depth, rows = c.batch * c.shape.keys;
    TypedBuffer q(bf16, random_floats(c.batch * c.shape.queries * width, 1, -2, 2));
    TypedBuffer k(bf16, random_floats(rows * kv_width(c.shape), 2, -2, 2));
    TypedBuffer v(bf16, random_floats(rows * kv_width(c.shape), 3, -2, 2));
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

/// Codes of queries, keys and values, each with a quantizer of its own.
struct CodeData {
  CodeData(const AttentionCase& c, AttentionShape& shape)
      : q(random_ints<uint8_t>(c.batch * shape.queries * shape.heads * shape.depth, 1, 0, 255)),
        k(random_ints<uint8_t>(c.batch * shape.keys * kv_width(shape), 2, 0, 255)),
        v(random_ints<uint8_t>(c.batch * shape.keys * kv_width(shape), 3, 0, 255)) {
    shape.query = {DataType::u8, {0.02F, 117}};
    shape.key = {DataType::u8, {0.013F, 0}};
    shape.value = {DataType::u8, {0.031F, 255}};
  }
  static std::vector<float> numbers(const std::vector<uint8_t>& codes, const Affine& affine) {
    std::vector<float> made;
    for (const uint8_t code : codes)
      made.push_back(static_cast<float>(code - affine.zero_point) * affine.scale);
    return made;
  }
  std::vector<uint8_t> q, k, v;
};

TEST(Attention, OfCodesIsWithinTheRoundingOfItsSoftmaxAndTheSameEverywhere) {
  const AttentionCase cases[] = {{{1, 1, 1, 1, 1.0F, false}, 1, false},
                                 {{2, 64, 128, 128, 0.125F, false}, 2, true},
                                 {{3, 5, 7, 19, 0.5F, false}, 2, true},
                                 {{4, 32, 50, 50, 0.25F, true}, 1, false},
                                 {{1, 17, 1, 33, 0.3F, false}, 3, false},
                                 {{2, 80, 25, 16, 0.1F, true}, 1, true},
                                 {{1, 33, 26, 129, 0.2F, false}, 1, true},
                                 {{2, 6, 31, 300, 0.4F, false}, 1, false},
                                 {{1, 8, 5, 520, 0.2F, true, 515}, 1, false},
                                 {{1, 8, 5, 520, 0.2F, true, 515, 0, 0, 300}, 1, false},
                                 {{1, 8, 3, 3, 0.3F, true, 9, 0, 0, 4}, 1, false},
                                 {{2, 32, 50, 50, 0.25F, true, 0, 0, 1, 7}, 1, false},
                                 {{4, 8, 30, 70, 0.3F, true, 40, 0, 2, 21}, 2, false},
                                 {{1, 8, 5, 20, 0.3F, true, 15, 0, 0, 1}, 1, false},
                                 {{6, 16, 40, 40, 0.3F, true, 0, 0, 2, 0, 1.5F}, 2, true}};
  for (AttentionCase c : cases) {
    const CodeData codes(c, c.shape);
    const auto v = CodeData::numbers(codes.v, c.shape.value.affine);
    std::vector<float> mask(static_cast<size_t>(c.batch * c.shape.keys));
    for (size_t i = 0; i < mask.size(); ++i) {
      if (i % 3 == 1) mask[i] = i % 2 == 0 ? -0.7F : -std::numeric_limits<float>::infinity();
    }
    // The last item sees no key at all.
    if (c.batch > 1)
      std::fill(mask.end() - c.shape.keys, mask.end(), -std::numeric_limits<float>::infinity());
    const auto q = CodeData::numbers(codes.q, c.shape.query.affine);
    const auto k = CodeData::numbers(codes.k, c.shape.key.affine);
    const std::vector<double> expected = attend_plainly(c, q, k, v, mask);
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    const double range = std::max(1e-3, double{*high} - *low);
    // Scores are integers but for the roundings of their scale; the numbers of the reference are rounded, too.
    const double score = static_cast<double>(c.shape.depth) * 255 * 255 * 0.02 * 0.013 * c.shape.scale;
    const double bound = range * (static_cast<double>(c.shape.keys) / 64000 + (8 * score + 64) * kUlp) +
                         8 * kUlp * 255 * 0.031;
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      for (const int workers : {1, 3}) {
        Guarded<float> y(static_cast<int64_t>(expected.size()));
        Workspace workspace(attention_workspace_bytes(c.shape, workers));
        attention(c.shape, c.batch, codes.q.data(), codes.k.data(), codes.v.data(),
                  c.mask ? mask.data() : nullptr, y.data(), workspace.data(), isa, ThreadParallel(workers));
        EXPECT_TRUE(y.intact());
        const std::vector<float> got = y.values();
        if (first.empty()) first = got;
        ASSERT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0)
            << to_string(isa) << ", " << workers << " workers, " << c.shape.queries << "x" << c.shape.keys
            << "; " << repeat_command();
      }
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(first[i], expected[i], bound)
          << "element " << i << " of " << c.shape.queries << "x" << c.shape.keys << "; " << repeat_command();
    }
  }
}

TEST(Attention, OfCodesReadsKeptKeysAndWritesCodes) {
  AttentionCase c{
      {.heads = 2, .depth = 10, .queries = 3, .keys = 20, .scale = 0.3F, .causal = true, .earlier = 17},
      2,
      false};
  const CodeData codes(c, c.shape);
  constexpr int64_t kWidth = 20, kItemKeys = 27;
  std::vector<uint8_t> k(2 * kItemKeys * kWidth, 9), v(2 * kItemKeys * kWidth, 200);
  for (int64_t item = 0; item < 2; ++item) {
    std::copy_n(codes.k.begin() + item * 20 * kWidth, 20 * kWidth, k.begin() + item * kItemKeys * kWidth);
    std::copy_n(codes.v.begin() + item * 20 * kWidth, 20 * kWidth, v.begin() + item * kItemKeys * kWidth);
  }
  for (const Isa isa : available_isas()) {
    Workspace workspace(attention_workspace_bytes(c.shape, 1));
    std::vector<float> dense(codes.q.size());
    attention(c.shape, 2, codes.q.data(), codes.k.data(), codes.v.data(), nullptr, dense.data(),
              workspace.data(), isa, ThreadParallel(1));
    AttentionShape kept = c.shape;
    kept.item_keys = kItemKeys;
    kept.output = {DataType::u8, {0.02F, 130}};
    Workspace other(attention_workspace_bytes(kept, 2));
    TypedBuffer made(kept.output, std::vector<float>(dense.size()));
    attention(kept, 2, codes.q.data(), k.data(), v.data(), nullptr, made.data(), other.data(), isa,
              ThreadParallel(2));
    EXPECT_EQ(made.bytes(), TypedBuffer(kept.output, dense).bytes()) << to_string(isa);
  }
}

/// The largest sums: products of a depth of 32768, and weighted values of more keys than 32 bits hold.
TEST(Attention, OfCodesOverflowsNowhere) {
  for (const int64_t depth : {32768, 32769}) {  // the second is computed in f32
    AttentionShape shape{.heads = 1, .depth = depth, .queries = 1, .keys = 2, .scale = 1};
    shape.query = shape.key = shape.value = {DataType::u8, {1.0F, 0}};
    ASSERT_EQ(attention_in_int8(shape), depth == 32768);
    const std::vector<uint8_t> q(static_cast<size_t>(depth), 255);
    std::vector<uint8_t> k(static_cast<size_t>(2 * depth), 0), v(static_cast<size_t>(2 * depth), 3);
    std::fill(k.begin() + depth, k.end(), uint8_t{255});
    std::fill(v.begin() + depth, v.end(), uint8_t{7});
    for (const Isa isa : available_isas()) {
      std::vector<float> y(static_cast<size_t>(depth));
      Workspace workspace(attention_workspace_bytes(shape, 1));
      attention(shape, 1, q.data(), k.data(), v.data(), nullptr, y.data(), workspace.data(), isa,
                ThreadParallel(1));
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float one) { return one == 7; })) << to_string(isa);
    }
  }
  AttentionShape shape{.heads = 1, .depth = 2, .queries = 1, .keys = 1000, .scale = 1};
  shape.query = shape.key = {DataType::u8, {1.0F, 5}};
  shape.value = {DataType::u8, {1.0F, 255}};
  const std::vector<uint8_t> q(2, 5), k(2000, 5), v(2000, 0);
  for (const Isa isa : available_isas()) {
    std::vector<float> y(2);
    Workspace workspace(attention_workspace_bytes(shape, 1));
    attention(shape, 1, q.data(), k.data(), v.data(), nullptr, y.data(), workspace.data(), isa,
              ThreadParallel(1));
    EXPECT_NEAR(y[0], -255, 255 * 8 * kUlp) << to_string(isa);
    EXPECT_NEAR(y[1], -255, 255 * 8 * kUlp) << to_string(isa);
  }
}

TEST(Attention, OfCodesAndAMaskThatIsNoNumberIsNaN) {
  AttentionShape shape{.heads = 1, .depth = 3, .queries = 2, .keys = 5, .scale = 0.5F};
  shape.query = shape.key = shape.value = {DataType::u8, {0.1F, 100}};
  const std::vector<uint8_t> codes(15, 50);
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> mask = {0, odd, 0, 0, 0};
    for (const Isa isa : available_isas()) {
      std::vector<float> y(6);
      Workspace workspace(attention_workspace_bytes(shape, 1));
      attention(shape, 1, codes.data(), codes.data(), codes.data(), mask.data(), y.data(), workspace.data(),
                isa, ThreadParallel(1));
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float one) { return std::isnan(one); }))
          << to_string(isa);
    }
  }
}

TEST(Attention, OfCodesKeepsKeysWhoseMaskIsTheLowestNumber) {
  AttentionShape shape{.heads = 1, .depth = 1, .queries = 1, .keys = 4, .scale = 1};
  shape.query = shape.key = {DataType::u8, {1.0F, 5}};
  shape.value = {DataType::u8, {1.0F, 0}};
  const std::vector<uint8_t> q(1, 5), k(4, 5), v = {10, 20, 30, 40};
  const std::vector<float> mask(4, std::numeric_limits<float>::lowest());
  for (const Isa isa : available_isas()) {
    float y = 0;
    Workspace workspace(attention_workspace_bytes(shape, 1));
    attention(shape, 1, q.data(), k.data(), v.data(), mask.data(), &y, workspace.data(), isa,
              ThreadParallel(1));
    EXPECT_NEAR(y, 25, 1e-4) << to_string(isa);
  }
}

}  // namespace
}  // namespace ulp::kernels
