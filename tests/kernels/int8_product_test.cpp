// Products of int8 matrices: every instruction set and split gives the bits of the formula in plain loops.
#include "ulp/kernels/linear/int8_product.h"

#include <cmath>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct ProductCase {
  int64_t rows, columns, inner;
  bool by_row_a, by_row_b, bias;
  DataType output;
  bool accumulate;
};

struct ProductData {
  std::vector<int8_t> a, b;
  std::vector<float> scale_a, scale_b, bias, before;
  int64_t step_a, step_b;
  explicit ProductData(const ProductCase& c)
      : a(random_ints<int8_t>(c.rows * (c.inner + 3), 1, -128, 127)),
        b(random_ints<int8_t>(c.columns * c.inner, 2, -128, 127)),
        scale_a(random_floats(c.rows, 3, 0.001F, 0.02F)),
        scale_b(random_floats(c.columns, 4, 0.001F, 0.02F)),
        bias(random_floats(c.columns, 5)),
        before(random_floats(c.rows * c.columns, 6)),
        step_a(c.inner + 3),
        step_b(c.inner) {}
};

/// Bits of the results as the header defines them, one operation at a time.
std::vector<uint32_t> by_the_formula(const ProductCase& c, const ProductData& d) {
  std::vector<uint32_t> y;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t o = 0; o < c.columns; ++o) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.inner; ++k) {
        sum += int64_t{d.a[static_cast<size_t>(r * d.step_a + k)]} *
               int64_t{d.b[static_cast<size_t>(o * d.step_b + k)]};
      }
      const float factor = d.scale_a[static_cast<size_t>(c.by_row_a ? r : 0)] *
                           d.scale_b[static_cast<size_t>(c.by_row_b ? o : 0)];
      float v = static_cast<float>(sum) * factor;
      v = v + (c.bias ? d.bias[static_cast<size_t>(o)] : 0.0F);
      if (c.accumulate) v = v + d.before[static_cast<size_t>(r * c.columns + o)];
      y.push_back(c.output == DataType::bf16 ? float_to_bf16(v) : float_to_bits(v));
    }
  }
  return y;
}

std::vector<uint32_t> compute(const ProductCase& c, const ProductData& d, Isa isa, const Parallel& parallel) {
  Int8Product p;
  p.rows = c.rows, p.columns = c.columns, p.inner = c.inner;
  p.a = {d.a.data(), d.step_a, d.scale_a.data(), c.by_row_a};
  p.b = {d.b.data(), d.step_b, d.scale_b.data(), c.by_row_b};
  p.bias = c.bias ? d.bias.data() : nullptr;
  p.output = c.output, p.accumulate = c.accumulate;
  const int64_t n = c.rows * c.columns;
  Guarded<float> floats(n);
  Guarded<uint16_t> halves(n);
  std::copy(d.before.begin(), d.before.end(), floats.data());
  p.y = c.output == DataType::f32 ? static_cast<void*>(floats.data()) : halves.data();
  const auto bytes = static_cast<int64_t>(int8_product_workspace(p, isa));
  Guarded<uint8_t> workspace(bytes, 0);
  int8_product(p, workspace.data(), isa, parallel);
  EXPECT_TRUE(floats.intact() && halves.intact() && workspace.intact()) << to_string(isa);
  std::vector<uint32_t> y;
  for (int64_t i = 0; i < n; ++i)
    y.push_back(c.output == DataType::f32 ? float_to_bits(floats.data()[i]) : halves.data()[i]);
  return y;
}

constexpr ProductCase kProducts[] = {{1, 1, 1, true, true, true, DataType::f32, false},
                                     {3, 5, 7, true, false, false, DataType::f32, true},
                                     {17, 33, 64, false, true, true, DataType::bf16, false},
                                     {90, 47, 130, true, true, false, DataType::bf16, false},
                                     {200, 100, 67, true, false, true, DataType::f32, true},
                                     {64, 160, 1025, false, false, false, DataType::f32, false},
                                     {2, 300, 32, true, true, true, DataType::f32, false},
                                     {5, 9, 0, true, true, true, DataType::f32, true}};

TEST(Int8Product, EveryInstructionSetAndSplitGivesTheFormulasBits) {
  for (const ProductCase& c : kProducts) {
    const ProductData data(c);
    const std::vector<uint32_t> expected = by_the_formula(c, data);
    for (const Isa isa : available_isas()) {
      for (const int workers : {1, 3}) {
        ASSERT_EQ(compute(c, data, isa, ThreadParallel(workers)), expected)
            << to_string(isa) << ", " << workers << " workers, " << c.rows << " x " << c.columns << " x "
            << c.inner << "; " << repeat_command();
      }
    }
  }
}

TEST(Int8Product, TheLongestSumsAreExact) {
  const ProductCase c{1, 2, kMaxInt8Inner, true, true, false, DataType::f32, false};
  ProductData data(c);
  std::fill(data.scale_a.begin(), data.scale_a.end(), 1.0F);
  std::fill(data.scale_b.begin(), data.scale_b.end(), 1.0F);
  for (const int8_t a : {int8_t{-128}, int8_t{127}}) {
    std::fill(data.a.begin(), data.a.end(), a);
    std::fill(data.b.begin(), data.b.end(), int8_t{-128});
    for (const Isa isa : available_isas()) {
      const float expected = static_cast<float>(int64_t{a} * -128 * kMaxInt8Inner);
      EXPECT_EQ(bits_to_float(compute(c, data, isa, SerialParallel())[1]), expected) << to_string(isa);
    }
  }
}

TEST(Int8Product, AScaleThatIsNaNGivesNaNThereAndNowhereElse) {
  const ProductCase c{4, 20, 18, true, true, true, DataType::f32, false};
  ProductData data(c);
  data.scale_a[1] = data.scale_b[3] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : available_isas()) {
    const std::vector<uint32_t> y = compute(c, data, isa, SerialParallel());
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(bits_to_float(y[i])), i / 20 == 1 || i % 20 == 3) << to_string(isa) << " " << i;
  }
}

TEST(Int8Product, RefusesWhatItCannotCompute) {
  Int8Product p;
  p.rows = p.columns = 1;
  p.inner = kMaxInt8Inner + 1;
  EXPECT_THROW(int8_product(p, nullptr, Isa::portable, SerialParallel()), Error);
  p.inner = 1;
  p.output = DataType::u8;
  EXPECT_THROW(int8_product(p, nullptr, Isa::portable, SerialParallel()), Error);
  p.output = DataType::bf16;
  p.accumulate = true;
  EXPECT_THROW(int8_product(p, nullptr, Isa::portable, SerialParallel()), Error);
}

}  // namespace
}  // namespace ulp::kernels
