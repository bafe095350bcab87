// Products of int8 matrices with scales by blocks: every instruction set and split gives the bits of the
// formula.
#include "ulp/kernels/linear/int8_block_product.h"

#include <cmath>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct BlockCase {
  int64_t rows, columns, inner;
  bool bias;
  DataType output;
};

int64_t blocks_in(int64_t n) {
  return (n + 31) / 32;
}

struct BlockData {
  std::vector<int8_t> a, b;
  std::vector<float> scale_a, scale_b, bias;
  explicit BlockData(const BlockCase& c)
      : a(random_ints<int8_t>(c.rows * c.inner, 1, -128, 127)),
        b(random_ints<int8_t>(c.columns * c.inner, 2, -128, 127)),
        scale_a(random_floats(blocks_in(c.rows) * blocks_in(c.inner), 3, 0.001F, 0.02F)),
        scale_b(random_floats(blocks_in(c.columns) * blocks_in(c.inner), 4, 0.001F, 0.02F)),
        bias(random_floats(c.columns, 5)) {}
};

std::vector<uint32_t> block_formula(const BlockCase& c, const BlockData& d) {
  std::vector<uint32_t> y;
  const int64_t blocks = blocks_in(c.inner);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t o = 0; o < c.columns; ++o) {
      float total = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        int64_t sum = 0;
        for (int64_t k = block * 32; k < std::min(c.inner, block * 32 + 32); ++k) {
          sum += int64_t{d.a[static_cast<size_t>(r * c.inner + k)]} *
                 int64_t{d.b[static_cast<size_t>(o * c.inner + k)]};
        }
        const float factor = d.scale_a[static_cast<size_t>(r / 32 * blocks + block)] *
                             d.scale_b[static_cast<size_t>(o / 32 * blocks + block)];
        const float part = static_cast<float>(sum) * factor;
        total = total + part;
      }
      total = total + (c.bias ? d.bias[static_cast<size_t>(o)] : 0.0F);
      y.push_back(c.output == DataType::bf16 ? float_to_bf16(total) : float_to_bits(total));
    }
  }
  return y;
}

std::vector<uint32_t> block_result(const BlockCase& c, const BlockData& d, Isa isa,
                                   const Parallel& parallel) {
  Int8BlockProduct p;
  p.rows = c.rows, p.columns = c.columns, p.inner = c.inner;
  p.a = {d.a.data(), d.scale_a.data()};
  p.b = {d.b.data(), d.scale_b.data()};
  p.bias = c.bias ? d.bias.data() : nullptr;
  p.output = c.output;
  const int64_t n = c.rows * c.columns;
  Guarded<float> floats(n);
  Guarded<uint16_t> halves(n);
  p.y = c.output == DataType::f32 ? static_cast<void*>(floats.data()) : halves.data();
  Guarded<uint8_t> workspace(static_cast<int64_t>(int8_block_product_workspace(p, isa)), 0);
  int8_block_product(p, workspace.data(), isa, parallel);
  EXPECT_TRUE(floats.intact() && halves.intact() && workspace.intact()) << to_string(isa);
  std::vector<uint32_t> y;
  for (int64_t i = 0; i < n; ++i)
    y.push_back(c.output == DataType::f32 ? float_to_bits(floats.data()[i]) : halves.data()[i]);
  return y;
}

constexpr BlockCase kBlockCases[] = {{1, 1, 1, true, DataType::f32},     {32, 32, 32, false, DataType::f32},
                                     {7, 40, 33, true, DataType::bf16},  {70, 9, 130, false, DataType::bf16},
                                     {100, 96, 67, true, DataType::f32}, {61, 65, 256, false, DataType::f32},
                                     {5, 9, 0, true, DataType::f32}};

TEST(Int8BlockProduct, EveryInstructionSetAndSplitGivesTheFormulasBits) {
  for (const BlockCase& c : kBlockCases) {
    const BlockData data(c);
    const std::vector<uint32_t> expected = block_formula(c, data);
    for (const Isa isa : available_isas()) {
      for (const int workers : {1, 3}) {
        ASSERT_EQ(block_result(c, data, isa, ThreadParallel(workers)), expected)
            << to_string(isa) << ", " << workers << " workers, " << c.rows << " x " << c.columns << " x "
            << c.inner << "; " << repeat_command();
      }
    }
  }
}

TEST(Int8BlockProduct, AScaleThatIsNaNSpoilsWhatItsBlockReaches) {
  const BlockCase c{40, 64, 96, true, DataType::f32};
  BlockData data(c);
  data.scale_a[1] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : available_isas()) {
    const std::vector<uint32_t> y = block_result(c, data, isa, SerialParallel());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(bits_to_float(y[i])), i / 64 < 32) << i;
  }
}

TEST(Int8BlockProduct, RefusesOtherResults) {
  Int8BlockProduct p;
  p.output = DataType::u8;
  EXPECT_THROW(int8_block_product(p, nullptr, Isa::portable, SerialParallel()), Error);
}

}  // namespace
}  // namespace ulp::kernels
