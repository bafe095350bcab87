// Products of a training step on every instruction set: the bits of one chain of multiply-adds.
#include "ulp/kernels/training/layer_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/helpers.h"
#include "sixteen_lanes.h"

namespace ulp::kernels {
namespace {

/// Null: vectors of 16 that are emulated, so that what AVX-512 does is tested everywhere but for its instructions.
using MaybeIsa = std::optional<Isa>;

const LayerProductOps& ops_of(MaybeIsa isa) {
  return isa ? layer_product_ops(*isa) : test::sixteen_lane_products();
}

std::vector<MaybeIsa> isas_and_emulated() {
  std::vector<MaybeIsa> all = {std::nullopt};
  for (const Isa isa : available_isas()) all.emplace_back(isa);
  return all;
}

class LayerProductTest : public ::testing::TestWithParam<MaybeIsa> {};
INSTANTIATE_TEST_SUITE_P(All, LayerProductTest, ::testing::ValuesIn(isas_and_emulated()),
                         [](const ::testing::TestParamInfo<MaybeIsa>& info) {
                           return std::string(info.param ? to_string(*info.param) : "emulated");
                         });

std::vector<float> random_numbers(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> made(static_cast<size_t>(n));
  for (float& one : made) one = normal(random);
  return made;
}

float finish_plainly(const LayerProduct& p, float sum) {
  if (p.finish == ProductFinish::relu) return sum < 0 ? 0.0F : sum;
  if (p.finish == ProductFinish::leaky_relu) return sum < 0 ? sum * p.slope : sum;
  return sum;
}

constexpr float kUntouched = 12345.0F;

/// Every number of y, and what lies behind the columns of each row but the last.
void expect_chains(const LayerProduct& p, MaybeIsa isa, std::vector<float> y) {
  const std::vector<float> before = y;
  LayerProduct run = p;
  run.y = y.data();
  ops_of(isa).product(run);
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.y_row; ++j) {
      const auto at = static_cast<size_t>(i * p.y_row + j);
      if (at >= y.size()) break;
      if (j >= p.columns) {
        ASSERT_EQ(y[at], kUntouched) << "behind row " << i;
        continue;
      }
      float sum = p.bias != nullptr ? p.bias[j] : p.adds ? before[at] : 0.0F;
      for (int64_t k = 0; k < p.inner; ++k)
        sum = std::fma(p.a[i * p.a_row + k * p.a_inner], p.b[k * p.b_inner + j], sum);
      ASSERT_EQ(y[at], finish_plainly(p, sum))
          << p.rows << " x " << p.inner << " x " << p.columns << " at " << i << ", " << j;
    }
  }
}

TEST_P(LayerProductTest, IsOneChainOfMultiplyAddsForEachNumber) {
  std::mt19937 random(1);
  for (const int64_t rows : {1, 2, 3, 5, 6, 7, 13, 64}) {
    for (const int64_t columns : {1, 3, 4, 7, 8, 9, 16, 23, 32, 64, 65, 130}) {
      for (const int64_t inner : {1, 2, 17, 64, 600}) {
        if (inner == 600 && rows * columns > 4000 && columns != 65) continue;  // long chains come in parts
        const bool by_columns = (rows + columns + inner) % 2 == 0;
        const int64_t b_step = columns + inner % 3, y_step = columns + rows % 4;
        // No memory behind the last numbers.
        const auto a = random_numbers(random, rows * inner);
        const auto b = random_numbers(random, (inner - 1) * b_step + columns),
                   bias = random_numbers(random, columns);
        std::vector<float> y(static_cast<size_t>((rows - 1) * y_step + columns), kUntouched);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j)
            y[static_cast<size_t>(i * y_step + j)] = static_cast<float>(i - j);
        }
        LayerProduct p{.rows = rows, .inner = inner, .columns = columns, .a = a.data(), .b = b.data()};
        p.a_row = by_columns ? 1 : inner;
        p.a_inner = by_columns ? rows : 1;
        p.b_inner = b_step;
        p.y_row = y_step;
        expect_chains(p, GetParam(), y);
        p.adds = true;
        expect_chains(p, GetParam(), y);
        p.adds = false;
        p.bias = bias.data();
        p.finish = ProductFinish::relu;
        expect_chains(p, GetParam(), y);
        p.finish = ProductFinish::leaky_relu;
        p.slope = 0.125F;
        expect_chains(p, GetParam(), y);
      }
    }
  }
}

TEST_P(LayerProductTest, PassesNotANumberThroughItsFinish) {
  const float a[] = {NAN}, b[] = {1.0F, 2.0F, 3.0F};
  for (const ProductFinish finish : {ProductFinish::none, ProductFinish::relu, ProductFinish::leaky_relu}) {
    float y[3] = {};
    const LayerProduct p{.rows = 1,
                         .inner = 1,
                         .columns = 3,
                         .a = a,
                         .a_row = 1,
                         .b = b,
                         .b_inner = 3,
                         .y = y,
                         .y_row = 3,
                         .finish = finish,
                         .slope = 0.5F};
    ops_of(GetParam()).product(p);
    for (const float one : y) EXPECT_TRUE(std::isnan(one));
  }
}

TEST_P(LayerProductTest, TransposesAnySizes) {
  std::mt19937 random(2);
  for (const int64_t rows : {1, 4, 8, 11, 16, 33}) {
    for (const int64_t columns : {1, 5, 8, 15, 24}) {
      const auto from = random_numbers(random, rows * columns);
      const int64_t step = rows + 3;
      std::vector<float> to(static_cast<size_t>(columns * step), kUntouched);
      ops_of(GetParam()).transpose(from.data(), rows, columns, to.data(), step);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < step; ++r) {
          const float expected = r < rows ? from[static_cast<size_t>(r * columns + c)] : kUntouched;
          ASSERT_EQ(to[static_cast<size_t>(c * step + r)], expected) << rows << " x " << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
