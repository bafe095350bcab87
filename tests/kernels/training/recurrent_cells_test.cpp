// Cells of recurrent layers on every instruction set: the bits of the plain ones, which are compared with formulas in float64.
#include "ulp/kernels/training/recurrent_cells.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/helpers.h"

namespace ulp::kernels {
namespace {

class RecurrentCellsTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, RecurrentCellsTest, ::testing::ValuesIn(available_isas()), test::isa_name);

using Floats = std::vector<float>;
constexpr int64_t kSizes[] = {1, 7, 16, 33};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST_P(RecurrentCellsTest, LstmForwardAndBackward) {
  const RecurrentCellOps& ops = recurrent_cell_ops(GetParam());
  const RecurrentCellOps& plain = recurrent_cell_ops(Isa::portable);
  for (const int64_t n : kSizes) {
    for (const bool starts : {false, true}) {
      const auto size = static_cast<size_t>(n);
      const Floats given = test::random_floats(4 * n, 1, -3, 3), before = test::random_floats(n, 2, -2, 2),
                   dh = test::random_floats(n, 3, -2, 2), later = test::random_floats(n, 4, -2, 2);
      const float* c_before = starts ? nullptr : before.data();
      const auto run = [&](const RecurrentCellOps& of) {
        Floats gates = given, c(size), h(size), dc = later, slopes(4 * size);
        of.lstm(n, gates.data(), c_before, c.data(), h.data());
        of.lstm_gradient(n, gates.data(), c_before, c.data(), dh.data(), dc.data(), slopes.data());
        return std::vector<Floats>{gates, c, h, dc, slopes};
      };
      const auto made = run(ops);
      EXPECT_EQ(made, run(plain));
      for (size_t j = 0; j < size; ++j) {
        const double i = sigmoid(double{given[j]}), f = sigmoid(double{given[size + j]}),
                     g = std::tanh(double{given[2 * size + j]}), o = sigmoid(double{given[3 * size + j]});
        const double c0 = starts ? 0 : double{before[j]}, c = f * c0 + i * g, t = std::tanh(c);
        const double cell = double{later[j]} + double{dh[j]} * o * (1 - t * t);
        constexpr double kBound = 0x1p-18;  // curves are within 2^-22, times at most 8 on the way
        EXPECT_NEAR(double{made[1][j]}, c, kBound);
        EXPECT_NEAR(double{made[2][j]}, o * t, kBound);
        EXPECT_NEAR(double{made[3][j]}, cell * f, kBound);
        EXPECT_NEAR(double{made[4][j]}, cell * g * i * (1 - i), kBound);
        EXPECT_NEAR(double{made[4][size + j]}, cell * c0 * f * (1 - f), kBound);
        EXPECT_NEAR(double{made[4][2 * size + j]}, cell * i * (1 - g * g), kBound);
        EXPECT_NEAR(double{made[4][3 * size + j]}, double{dh[j]} * t * o * (1 - o), kBound);
      }
    }
  }
}

TEST_P(RecurrentCellsTest, GruForwardAndBackward) {
  const RecurrentCellOps& ops = recurrent_cell_ops(GetParam());
  const RecurrentCellOps& plain = recurrent_cell_ops(Isa::portable);
  for (const int64_t n : kSizes) {
    for (const bool starts : {false, true}) {
      const auto size = static_cast<size_t>(n);
      const Floats given = test::random_floats(3 * n, 5, -3, 3),
                   hidden = test::random_floats(3 * n, 6, -2, 2), before = test::random_floats(n, 7, -1, 1),
                   dh = test::random_floats(n, 8, -2, 2);
      const float* h_before = starts ? nullptr : before.data();
      const auto run = [&](const RecurrentCellOps& of) {
        Floats gates = given, h(size), slopes(3 * size), hidden_slopes(3 * size), back(size);
        of.gru(n, gates.data(), hidden.data(), h_before, h.data());
        of.gru_gradient(n, gates.data(), hidden.data(), h_before, dh.data(), slopes.data(),
                        hidden_slopes.data(), back.data());
        return std::vector<Floats>{gates, h, slopes, hidden_slopes, back};
      };
      const auto made = run(ops);
      EXPECT_EQ(made, run(plain));
      for (size_t j = 0; j < size; ++j) {
        const double r = sigmoid(double{given[j]} + double{hidden[j]}),
                     z = sigmoid(double{given[size + j]} + double{hidden[size + j]}),
                     hn = double{hidden[2 * size + j]}, m = std::tanh(double{given[2 * size + j]} + r * hn),
                     h0 = starts ? 0 : double{before[j]};
        const double slope = double{dh[j]} * (1 - z) * (1 - m * m);
        constexpr double kBound = 0x1p-18;
        EXPECT_NEAR(double{made[1][j]}, (1 - z) * m + z * h0, kBound);
        EXPECT_NEAR(double{made[2][j]}, slope * hn * r * (1 - r), kBound);
        EXPECT_NEAR(double{made[2][size + j]}, double{dh[j]} * (h0 - m) * z * (1 - z), kBound);
        EXPECT_NEAR(double{made[2][2 * size + j]}, slope, kBound);
        EXPECT_EQ(made[3][j], made[2][j]);
        EXPECT_EQ(made[3][size + j], made[2][size + j]);
        EXPECT_NEAR(double{made[3][2 * size + j]}, slope * r, kBound);
        EXPECT_NEAR(double{made[4][j]}, double{dh[j]} * z, kBound);
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
