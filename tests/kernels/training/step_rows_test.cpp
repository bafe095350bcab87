// Loops of a compiled training step on every instruction set: the bits of the plain ones, which are compared with formulas in
// float64.
#include "ulp/kernels/training/step_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/helpers.h"

namespace ulp::kernels {
namespace {

class StepRowsTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, StepRowsTest, ::testing::ValuesIn(available_isas()), test::isa_name);

constexpr float kNumbers[3] = {0.75F, 1.25F, 1.5F};

struct Point {
  double value, slope;
};

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x * M_SQRT1_2);
}

/// A new row of the table needs its formula here: the compiler asks for it.
Point exact_point(Differentiable function, double x) {
  const double a = double{kNumbers[0]}, b = double{kNumbers[1]}, c = double{kNumbers[2]};
  const double sigmoid = 1 / (1 + std::exp(-x)), root = std::sqrt(2 / M_PI);
  switch (function) {
    case Differentiable::affine:
      return {a * x + b, a};
    case Differentiable::divide:
      return {x / a, 1 / a};
    case Differentiable::relu:
      return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
    case Differentiable::leaky_relu:
      return {x > 0 ? x : a * x, x > 0 ? 1.0 : a};
    case Differentiable::tanh:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
    case Differentiable::sigmoid:
      return {sigmoid, sigmoid * (1 - sigmoid)};
    case Differentiable::gelu:
      return {x * normal_cdf(x), normal_cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI)};
    case Differentiable::gelu_tanh: {
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)};
    }
    case Differentiable::silu:
      return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
    case Differentiable::elu:
      return {x > 0 ? b * x : a * b * std::expm1(c * x), x > 0 ? b : a * b * c * std::exp(c * x)};
    case Differentiable::softplus:
      return {a * x > b ? x : std::log1p(std::exp(a * x)) / a, a * x > b ? 1.0 : 1 / (1 + std::exp(-a * x))};
    case Differentiable::exp:
      return {std::exp(x), std::exp(x)};
    case Differentiable::log:
      return {std::log(x), 1 / x};
    case Differentiable::square:
      return {x * x, 2 * x};
    case Differentiable::abs:
      return {std::fabs(x), x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0};
    case Differentiable::sqrt:
      return {std::sqrt(x), 0.5 / std::sqrt(x)};
    case Differentiable::clamp:
    case Differentiable::hardtanh:
      return {std::clamp(x, a, b), x >= a && x <= b ? 1.0 : 0.0};
    case Differentiable::hardsigmoid:
      return {std::clamp(x + 3, 0.0, 6.0) / 6, x > -3 && x < 3 ? 1.0 / 6 : 0.0};
    case Differentiable::hardswish:
      return {x * std::clamp(x + 3, 0.0, 6.0) / 6, x <= -3 ? 0.0 : x < 3 ? x / 3 + 0.5 : 1.0};
  }
  return {NAN, NAN};
}

#define ULP_NAME_CASE(name, ...) Differentiable::name,
constexpr Differentiable kAllFunctions[] = {ULP_DIFFERENTIABLE(ULP_NAME_CASE)};
#undef ULP_NAME_CASE

/// Inputs of a function: a length that no vector divides.
std::vector<float> inputs_of(Differentiable function) {
  std::vector<float> x = test::random_floats(1003, 1, -6, 6);
  x[0] = 0;
  if (function == Differentiable::log || function == Differentiable::sqrt) {
    for (float& one : x) one = std::fabs(one) + 0.01F;
  }
  return x;
}

TEST_P(StepRowsTest, ValuesAndGradientsAreThoseOfTheFormulas) {
  const StepRowOps& ops = step_row_ops(GetParam());
  const StepRowOps& plain = step_row_ops(Isa::portable);
  for (const Differentiable function : kAllFunctions) {
    const std::vector<float> x = inputs_of(function), g = test::random_floats(1003, 2, -2, 2);
    const auto n = static_cast<int64_t>(x.size());
    std::vector<float> y(x.size()), dx(x.size()), plain_y(x.size()), plain_dx(x.size());
    ops.value(function, kNumbers, x.data(), y.data(), n);
    ops.gradient(function, kNumbers, g.data(), x.data(), y.data(), dx.data(), n);
    plain.value(function, kNumbers, x.data(), plain_y.data(), n);
    plain.gradient(function, kNumbers, g.data(), x.data(), plain_y.data(), plain_dx.data(), n);
    EXPECT_EQ(y, plain_y) << static_cast<int>(function);
    EXPECT_EQ(dx, plain_dx) << static_cast<int>(function);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = double{x[i]};
      const Point exact = exact_point(function, at);
      // Curves are within 2^-22 (curves.h), and enter slopes times at most 1 + x^2; other steps are rounded once each.
      const double bound = 0x1p-20 * (1 + at * at);
      EXPECT_NEAR(double{y[i]}, exact.value, bound * std::max(1.0, std::fabs(exact.value)))
          << static_cast<int>(function) << " at " << at;
      EXPECT_NEAR(double{dx[i]}, exact.slope * double{g[i]},
                  bound * std::max(1.0, std::fabs(exact.slope)) * std::fabs(double{g[i]}))
          << static_cast<int>(function) << " at " << at;
    }
  }
}

/// Rows that lie apart, and NaN between them.
struct Matrix {
  int64_t rows, width, stride;
  std::vector<float> data;
  Matrix(int64_t rows, int64_t width, uint32_t seed)
      : rows(rows), width(width), stride(width + 5), data(static_cast<size_t>(rows * stride), NAN) {
    const auto numbers = test::random_floats(rows * width, seed, -3, 3);
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(numbers.begin() + r * width, width, data.begin() + r * stride);
  }
  StepRows view() const { return {data.data(), rows, width, stride}; }
  double at(int64_t r, int64_t j) const { return double{data[static_cast<size_t>(r * stride + j)]}; }
};

constexpr int64_t kWidths[] = {1, 2, 4, 10, 16, 33, 64, 100};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Point exact_loss(PointLoss loss, double x, double t, double beta) {
  const double d = x - t, m = std::fabs(d), sign = d > 0 ? 1 : d < 0 ? -1 : 0;
  switch (loss) {
    case PointLoss::mse:
      return {d * d, 2 * d};
    case PointLoss::l1:
      return {m, sign};
    case PointLoss::smooth_l1:
      return m < beta ? Point{d * d / (2 * beta), d / beta} : Point{m - beta / 2, sign};
    case PointLoss::huber:
      return m <= beta ? Point{d * d / 2, d} : Point{beta * (m - beta / 2), beta * sign};
    case PointLoss::bce_logits:
      return {std::max(-x, 0.0) + (1 - t) * x + std::log1p(std::exp(-std::fabs(x))),
              1 / (1 + std::exp(-x)) - t};
  }
  return {NAN, NAN};
}

TEST_P(StepRowsTest, LossesOfPointsAndTheirGradients) {
  const StepRowOps& ops = step_row_ops(GetParam());
  const float beta = 0.75F, scale = 0.125F;
  for (const PointLoss loss :
       {PointLoss::mse, PointLoss::l1, PointLoss::smooth_l1, PointLoss::huber, PointLoss::bce_logits}) {
    for (const int64_t width : kWidths) {
      const Matrix x(7, width, 1), t(7, width, 2);
      std::vector<float> dx(x.data.size(), 5), plain_dx(x.data.size(), 5);
      const double sum = ops.point_loss(loss, beta, scale, x.view(), t.view(), dx.data(), x.stride);
      const double plain = step_row_ops(Isa::portable)
                               .point_loss(loss, beta, scale, x.view(), t.view(), plain_dx.data(), x.stride);
      EXPECT_EQ(sum, plain);
      EXPECT_TRUE(same_bits(dx, plain_dx));
      double exact = 0;
      for (int64_t r = 0; r < x.rows; ++r) {
        for (int64_t j = 0; j < x.stride; ++j) {
          const double made = double{dx[static_cast<size_t>(r * x.stride + j)]};
          if (j >= width) {
            EXPECT_EQ(made, 5) << "between rows";
            continue;
          }
          const Point point = exact_loss(loss, x.at(r, j), t.at(r, j), double{beta});
          exact += point.value;
          EXPECT_NEAR(made, point.slope * double{scale},
                      0x1p-20 * double{scale} * (1 + std::fabs(point.slope)));
        }
      }
      EXPECT_NEAR(sum, exact, 0x1p-20 * (exact + static_cast<double>(x.rows * width)));
    }
  }
}

TEST_P(StepRowsTest, CrossEntropyAndSoftmax) {
  const StepRowOps& ops = step_row_ops(GetParam());
  const StepRowOps& plain = step_row_ops(Isa::portable);
  for (const int64_t width : kWidths) {
    const Matrix x(5, width, 3), g(5, width, 4);
    std::vector<int64_t> classes;
    for (int64_t r = 0; r < x.rows; ++r) classes.push_back(r * 7 % width);
    const std::vector<float> empty(x.data.size(), 0), weights = {1, -2, 0.5F, 0, 3};
    std::vector<float> made[5] = {empty, empty, empty, empty, empty},
                       other[5] = {empty, empty, empty, empty, empty};
    double sums[2];
    for (const bool which : {false, true}) {
      const StepRowOps& run = which ? plain : ops;
      auto& to = which ? other : made;
      sums[which ? 1 : 0] =
          run.cross_entropy(x.view(), classes.data(), weights.data(), 0.5F, to[0].data(), x.stride);
      run.log_softmax(x.view(), to[1].data());
      run.log_softmax_gradient(g.view(), to[1].data(), to[2].data());
      run.softmax(x.view(), to[3].data());
      run.softmax_gradient(g.view(), to[3].data(), to[4].data());
    }
    EXPECT_EQ(sums[0], sums[1]);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(made[i], other[i])) << i;
    double loss = 0;
    for (int64_t r = 0; r < x.rows; ++r) {
      double total = 0, of_g = 0, dot = 0;
      for (int64_t j = 0; j < width; ++j) total += std::exp(x.at(r, j));
      for (int64_t j = 0; j < width; ++j) {
        of_g += g.at(r, j);
        dot += g.at(r, j) * std::exp(x.at(r, j)) / total;
      }
      const int64_t chosen = classes[static_cast<size_t>(r)];
      const auto weight = double{weights[static_cast<size_t>(r)]};
      loss += weight * (std::log(total) - x.at(r, chosen));
      // Exponentials within 2^-22 each, sums of `width` of them, and gradients of up to 3 in magnitude.
      const double bound = 0x1p-21 * static_cast<double>(8 + width);
      for (int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<size_t>(r * x.stride + j);
        const double p = std::exp(x.at(r, j)) / total;
        EXPECT_NEAR(double{made[0][at]}, 0.5 * weight * (p - (j == chosen ? 1 : 0)), bound * 2);
        EXPECT_NEAR(double{made[1][at]}, std::log(p), bound * (1 + std::fabs(std::log(p))));
        EXPECT_NEAR(double{made[2][at]}, g.at(r, j) - p * of_g, bound * 4);
        EXPECT_NEAR(double{made[3][at]}, p, bound);
        EXPECT_NEAR(double{made[4][at]}, (g.at(r, j) - dot) * p, bound * 4);
      }
    }
    EXPECT_NEAR(sums[0], loss, 0x1p-20 * 7 * (4 + std::log(static_cast<double>(width)) + 6));
  }
}

TEST_P(StepRowsTest, LayerNormAndItsGradients) {
  const StepRowOps& ops = step_row_ops(GetParam());
  const StepRowOps& plain = step_row_ops(Isa::portable);
  const float epsilon = 1e-5F;
  for (const int64_t width : kWidths) {
    const Matrix x(6, width, 5), g(6, width, 6);
    const auto n = static_cast<size_t>(width);
    const auto weight = test::random_floats(width, 7, 0.5F, 1.5F), bias = test::random_floats(width, 8);
    const std::vector<float> empty(x.data.size(), 0);
    std::vector<float> y = empty, dx = empty, dw(n), db(n), plain_y = empty, plain_dx = empty, plain_dw(n),
                       plain_db(n);
    ops.layer_norm(x.view(), weight.data(), bias.data(), {epsilon}, y.data());
    ops.layer_norm_gradient(g.view(), x.view(), weight.data(), {epsilon}, dx.data(), false, dw.data(), false,
                            db.data(), nullptr);
    plain.layer_norm(x.view(), weight.data(), bias.data(), {epsilon}, plain_y.data());
    plain.layer_norm_gradient(g.view(), x.view(), weight.data(), {epsilon}, plain_dx.data(), false,
                              plain_dw.data(), false, plain_db.data(), nullptr);
    EXPECT_TRUE(same_bits(y, plain_y) && same_bits(dx, plain_dx) && same_bits(dw, plain_dw) &&
                same_bits(db, plain_db));
    std::vector<double> exact_dw(n), exact_db(n);
    const auto count = static_cast<double>(width);
    for (int64_t r = 0; r < x.rows; ++r) {
      double mean = 0, variance = 0, sum = 0, dot = 0;
      for (int64_t j = 0; j < width; ++j) mean += x.at(r, j) / count;
      for (int64_t j = 0; j < width; ++j) variance += (x.at(r, j) - mean) * (x.at(r, j) - mean) / count;
      const double factor = 1 / std::sqrt(variance + double{epsilon});
      const auto hat = [&](int64_t j) { return (x.at(r, j) - mean) * factor; };
      const auto h = [&](int64_t j) { return g.at(r, j) * double{weight[static_cast<size_t>(j)]}; };
      for (int64_t j = 0; j < width; ++j) {
        sum += h(j) / count;
        dot += h(j) * hat(j) / count;
        exact_dw[static_cast<size_t>(j)] += g.at(r, j) * hat(j);
        exact_db[static_cast<size_t>(j)] += g.at(r, j);
      }
      // Numbers of up to 3 and sums of `width` of them, times the factor.
      const double bound = 0x1p-22 * (16 + count) * 4 * (1 + factor);
      for (int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<size_t>(r * x.stride + j);
        EXPECT_NEAR(double{y[at]},
                    hat(j) * double{weight[static_cast<size_t>(j)]} + double{bias[static_cast<size_t>(j)]},
                    bound);
        EXPECT_NEAR(double{dx[at]}, (h(j) - sum - hat(j) * dot) * factor, bound * (1 + factor));
      }
    }
    for (size_t j = 0; j < n; ++j) {
      EXPECT_NEAR(double{dw[j]}, exact_dw[j], 0x1p-18 * (1 + std::fabs(exact_dw[j])) * (width == 2 ? 64 : 1));
      EXPECT_NEAR(double{db[j]}, exact_db[j], 0x1p-20 * (1 + std::fabs(exact_db[j])));
    }
    // In two passes, as several threads do it.
    std::vector<float> moments(12), apart_dx = empty, apart_dw(n), apart_db(n);
    ops.layer_norm_gradient(g.view(), x.view(), weight.data(), {epsilon}, apart_dx.data(), false, nullptr,
                            false, nullptr, moments.data());
    ops.layer_norm_sums(g.view(), x.view(), moments.data(), false, apart_dw.data(), false, apart_db.data());
    EXPECT_TRUE(same_bits(apart_dx, dx) && same_bits(apart_dw, dw) && same_bits(apart_db, db));
    // Sums that are added to.
    std::vector<float> twice = dw, bias_twice = db;
    ops.layer_norm_gradient(g.view(), x.view(), weight.data(), {epsilon}, nullptr, true, twice.data(), true,
                            bias_twice.data(), nullptr);
    ops.layer_norm_sums(g.view(), x.view(), moments.data(), true, apart_dw.data(), true, apart_db.data());
    EXPECT_TRUE(same_bits(apart_dw, twice) && same_bits(apart_db, bias_twice));
    for (size_t j = 0; j < n; ++j)
      EXPECT_NEAR(double{twice[j]}, 2 * double{dw[j]}, 0x1p-20 * (1 + std::fabs(double{dw[j]})) * 4);
  }
}

TEST_P(StepRowsTest, DropoutDrawsByElement) {
  const formats::RandomKey key{3, 5};
  const std::vector<float> x = test::random_floats(1000, 10, 1, 2);
  std::vector<float> y(x.size());
  const uint32_t threshold = 0x40000000;  // a quarter
  step_row_ops(GetParam())
      .dropout(key, 0, threshold, 1.5F, x.data(), y.data(), static_cast<int64_t>(x.size()));
  int dropped = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool stays = formats::random_bits(key, i) >= threshold;
    EXPECT_EQ(y[i], stays ? x[i] * 1.5F : 0.0F) << i;
    dropped += stays ? 0 : 1;
  }
  std::vector<float> parts(x.size());
  for (size_t begin = 0; begin < x.size(); begin += 4 * formats::kRandomGroup) {
    const size_t n = std::min<size_t>(x.size() - begin, 4 * formats::kRandomGroup);
    step_row_ops(GetParam())
        .dropout(key, static_cast<int64_t>(begin), threshold, 1.5F, x.data() + begin, parts.data() + begin,
                 static_cast<int64_t>(n));
  }
  EXPECT_TRUE(same_bits(parts, y));
  EXPECT_NEAR(dropped, 250, 5 * std::sqrt(1000 * 0.25 * 0.75));
}

TEST_P(StepRowsTest, SumsAndChoices) {
  const StepRowOps& ops = step_row_ops(GetParam());
  for (const int64_t width : kWidths) {
    const Matrix x(9, width, 9);
    std::vector<float> sums(static_cast<size_t>(width), 1), expected = sums;
    double total = 0;
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t j = 0; j < width; ++j) {
        expected[static_cast<size_t>(j)] += static_cast<float>(x.at(r, j));
        total += x.at(r, j);
      }
    }
    ops.column_sums(x.view(), true, sums.data());
    EXPECT_EQ(sums, expected);
    ops.column_sums(x.view(), false, sums.data());
    for (size_t j = 0; j < sums.size(); ++j) EXPECT_NEAR(double{sums[j]}, double{expected[j]} - 1, 0x1p-19);
    EXPECT_NEAR(ops.total(x.view()), total, 1e-12);
    std::vector<float> rows(2 * 9), plain_rows(2 * 9);
    ops.row_sums(x.view(), rows.data(), 2);
    step_row_ops(Isa::portable).row_sums(x.view(), plain_rows.data(), 2);
    EXPECT_EQ(rows, plain_rows);
    EXPECT_NEAR(std::accumulate(rows.begin(), rows.end(), 0.0), total,
                0x1p-20 * static_cast<double>(9 * width));
  }
  const float a[] = {1, 2, 3, NAN, -1}, b[] = {2, 1, 3, 0, NAN}, g[] = {1, 2, 4, 8, 16};
  float y[5], dx[5];
  ops.select(a, b, 1, y, 5);
  EXPECT_TRUE(y[0] == 1 && y[1] == 1 && y[2] == 3 && std::isnan(y[3]) && std::isnan(y[4]));
  ops.select(a, b, -1, y, 5);
  EXPECT_TRUE(y[0] == 2 && y[1] == 2 && y[2] == 3 && std::isnan(y[3]) && std::isnan(y[4]));
  ops.select_gradient(g, a, b, 1, dx, 3);
  EXPECT_TRUE(dx[0] == 1 && dx[1] == 0 && dx[2] == 2);
  ops.select_gradient(g, a, b, -1, dx, 3);
  EXPECT_TRUE(dx[0] == 0 && dx[1] == 2 && dx[2] == 2);
  const float edge[] = {kNumbers[0], kNumbers[1], 1}, one[] = {1, 1, 1};
  ops.gradient(Differentiable::clamp, kNumbers, one, edge, edge, dx, 3);
  EXPECT_TRUE(dx[0] == 1 && dx[1] == 1 && dx[2] == 1) << "clamp has a gradient at its bounds";
  ops.gradient(Differentiable::hardtanh, kNumbers, one, edge, edge, dx, 3);
  EXPECT_TRUE(dx[0] == 0 && dx[1] == 0 && dx[2] == 1) << "hardtanh has none";
  ops.add_scaled(a, g, -2, y, 3);
  EXPECT_TRUE(y[0] == -1 && y[1] == -2 && y[2] == -5);
  ops.quotient(g, a, y, 3);
  EXPECT_TRUE(y[0] == 1 && y[1] == 1 && y[2] == 4.0F / 3);
  ops.multiply(a, g, y, 3);
  EXPECT_TRUE(y[0] == 1 && y[1] == 4 && y[2] == 12);
}

}  // namespace
}  // namespace ulp::kernels
