// Packed products on every instruction set: the bits of the chains of multiply-adds that they are.
#include "ulp/kernels/training/packed_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/helpers.h"

namespace ulp::kernels {
namespace {

class PackedProductTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, PackedProductTest, ::testing::ValuesIn(available_isas()), test::isa_name);

/// Rounded to bf16, to nearest even; numbers below 2^-126 are zero.
float rounded(float value) {
  if (std::isnan(value)) return value;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float made = std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U);
  return std::fabs(made) < 0x1p-126F ? std::copysign(0.0F, made) : made;
}

struct Sizes {
  int64_t rows, inner, columns;
};

/// A product, its two sides in either order of memory.
struct Problem {
  Sizes sizes;
  bool left_across, right_across;  ///< rows (columns) lie side by side
  bool bias, adds;
  ProductFinish finish = ProductFinish::none;
  std::vector<float> a, b, bias_row, y;

  Problem(const Sizes& of, uint32_t seed) : sizes(of) {
    std::mt19937 random(seed);
    left_across = random() % 2 == 0;
    right_across = random() % 2 == 0;
    adds = random() % 3 == 0;
    bias = !adds && random() % 2 == 0;
    finish = random() % 2 == 0 ? ProductFinish::relu : ProductFinish::none;
    a = test::random_floats(of.rows * of.inner, seed + 1, -2, 2);
    b = test::random_floats(of.inner * of.columns, seed + 2, -2, 2);
    bias_row = test::random_floats(of.columns, seed + 3, -2, 2);
    y = test::random_floats(of.rows * of.columns, seed + 4, -2, 2);
  }
  ProductSide left() const {
    return left_across ? ProductSide{a.data(), 1, sizes.rows} : ProductSide{a.data(), sizes.inner, 1};
  }
  ProductSide right() const {
    return right_across ? ProductSide{b.data(), 1, sizes.columns} : ProductSide{b.data(), sizes.inner, 1};
  }
  static float at(const ProductSide& side, int64_t i, int64_t k) {
    return side.data[i * side.step + k * side.inner_step];
  }

  std::vector<float> expected(bool bf16) const {
    std::vector<float> made = y;
    for (int64_t i = 0; i < sizes.rows; ++i) {
      for (int64_t j = 0; j < sizes.columns; ++j) {
        float& to = made[static_cast<size_t>(i * sizes.columns + j)];
        float sum = adds ? to : bias ? bias_row[static_cast<size_t>(j)] : 0.0F;
        for (int64_t k = 0; k < sizes.inner; ++k) {
          const float left_one = at(left(), i, k), right_one = at(right(), j, k);
          sum = std::fmaf(bf16 ? rounded(left_one) : left_one, bf16 ? rounded(right_one) : right_one, sum);
        }
        to = finish == ProductFinish::relu ? (sum > 0 || std::isnan(sum) ? sum : 0.0F) : sum;
      }
    }
    return made;
  }

  std::vector<float> computed(const PackedProductOps& ops) const {
    const int64_t words = (sizes.inner + ops.word_numbers - 1) / ops.word_numbers;
    const int64_t panels = (sizes.columns + ops.panel - 1) / ops.panel, step = words * ops.panel;
    std::vector<float> right_words(static_cast<size_t>(panels * step), NAN), made = y;
    ops.pack_right(right(), sizes.inner, sizes.columns, 0, panels / 2, right_words.data(), step);
    ops.pack_right(right(), sizes.inner, sizes.columns, panels / 2, panels, right_words.data(), step);
    PackedProduct product{.rows = sizes.rows,
                          .words = words,
                          .columns = sizes.columns,
                          .a = a.data(),
                          .a_row = left().step,
                          .a_inner = left().inner_step,
                          .b = right_words.data(),
                          .panel_step = step,
                          .bias = bias ? bias_row.data() : nullptr,
                          .y = made.data(),
                          .y_row = sizes.columns,
                          .adds = adds,
                          .finish = finish};
    std::vector<float> left_words(static_cast<size_t>(words * sizes.rows), NAN);
    if (ops.pack_left != nullptr) {
      product.a = left_words.data();
      product.a_row = left_across ? 1 : words;
      product.a_inner = left_across ? sizes.rows : 1;
      ops.pack_left(left(), sizes.rows, sizes.inner, left_words.data(), product.a_row, product.a_inner);
    }
    ops.product(product);
    return made;
  }
};

TEST_P(PackedProductTest, IsOneChainOfMultiplyAddsForEachNumber) {
  std::mt19937 random(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (uint32_t i = 0; i < 60; ++i) {
    const int64_t longest = i % 10 == 0 ? 1100 : 40;  // past a block of the inner index
    const Sizes sizes{draw(1, 30), draw(1, longest), draw(1, 70)};
    const Problem problem(sizes, 100 * i + 1);
    SCOPED_TRACE(std::to_string(sizes.rows) + " x " + std::to_string(sizes.inner) + " x " +
                 std::to_string(sizes.columns));
    EXPECT_EQ(problem.computed(packed_product_ops(GetParam(), false)), problem.expected(false));
    EXPECT_EQ(problem.computed(packed_product_ops(GetParam(), true)), problem.expected(true));
  }
}

TEST_P(PackedProductTest, RoundsToBf16ToNearestEven) {
  // Ties, what rounds up to infinity, the smallest numbers and what is no number, each times one.
  const std::vector<float> numbers = {
      1.0F,      1.00390625F, 1.01171875F, -1.00390625F, 0x1.fffffep127F,  INFINITY,
      -INFINITY, 0x1p-126F,   0x1p-127F,   0x1p-149F,    0x1.fffffep-127F, -0.0F,
      0.0F,      3.14159265F, 1.00390637F};
  const auto n = static_cast<int64_t>(numbers.size());
  const PackedProductOps& ops = packed_product_ops(GetParam(), true);
  const float one = 1;
  std::vector<float> panel(static_cast<size_t>((n + ops.panel - 1) / ops.panel * ops.panel)), left(1),
      made(numbers.size());
  ops.pack_right({numbers.data(), 1, n}, 1, n, 0, (n + ops.panel - 1) / ops.panel, panel.data(), ops.panel);
  ops.pack_left({&one, 1, 1}, 1, 1, left.data(), 1, 1);
  ops.product({.rows = 1,
               .words = 1,
               .columns = n,
               .a = left.data(),
               .a_row = 1,
               .b = panel.data(),
               .panel_step = ops.panel,
               .y = made.data(),
               .y_row = n});
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(made[i], rounded(numbers[i])) << numbers[i];
  const float nan = std::bit_cast<float>(0x7f800001U);  // whose upper half is that of infinity
  ops.pack_right({&nan, 1, 1}, 1, 1, 0, 1, panel.data(), ops.panel);
  ops.product({.rows = 1,
               .words = 1,
               .columns = 1,
               .a = left.data(),
               .a_row = 1,
               .b = panel.data(),
               .panel_step = ops.panel,
               .y = made.data(),
               .y_row = n});
  EXPECT_TRUE(std::isnan(made[0]));
}

}  // namespace
}  // namespace ulp::kernels
