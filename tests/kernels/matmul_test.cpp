// Products of matrices in any strided form against plain loops, on every instruction set.
#include "ulp/kernels/matmul/matmul.h"

#include <cmath>

#include "helpers.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct Sizes {
  int64_t rows, inner, columns;
};

constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 300, 70},  {5, 7, 3},    {13, 64, 33},   {24, 16, 32},
                            {97, 5, 17}, {100, 257, 9}, {12, 30, 64}, {130, 520, 300}};

/// Runs it on every instruction set and compares with sums in float64.
void check(const MatmulShape& shape, DataType type, const std::vector<float>& a, const std::vector<float>& b,
           int64_t batch) {
  std::vector<uint16_t> a16, b16;
  for (const float v : a) a16.push_back(float_to_bf16(v));
  for (const float v : b) b16.push_back(float_to_bf16(v));
  const auto value = [&](const std::vector<float>& wide, const std::vector<uint16_t>& half, int64_t i) {
    const auto at = static_cast<size_t>(i);
    return type == DataType::bf16 ? double{bf16_to_float(half[at])} : double{wide[at]};
  };
  int64_t products = batch;
  for (const MatmulDimension& d : shape.dimensions) products *= d.size;
  for (const Isa isa : available_isas()) {
    for (const int workers : {1, 3}) {
      Guarded<float> y(products * shape.rows * shape.columns);
      std::vector<float> scratch(matmul_workspace_bytes(shape, workers) / sizeof(float));
      const bool half = type == DataType::bf16;
      const void* left = half ? static_cast<const void*>(a16.data()) : a.data();
      const void* right = half ? static_cast<const void*>(b16.data()) : b.data();
      matmul(shape, type, left, type, right, y.data(), batch, scratch.data(), isa, ThreadParallel(workers));
      EXPECT_TRUE(y.intact());
      const double bound = 0x1p-22 * std::sqrt(static_cast<double>(shape.inner)) + 1e-6;
      for (int64_t i = 0; i < products * shape.rows * shape.columns; i += 1 + i % 7) {
        const int64_t column = i % shape.columns, row = i / shape.columns % shape.rows;
        int64_t left_product = i / shape.columns / shape.rows, a_at = shape.a.offset, b_at = shape.b.offset;
        for (size_t d = shape.dimensions.size(); d-- > 0; left_product /= shape.dimensions[d].size) {
          a_at += left_product % shape.dimensions[d].size * shape.dimensions[d].a;
          b_at += left_product % shape.dimensions[d].size * shape.dimensions[d].b;
        }
        a_at += left_product * shape.a.item + row * shape.a.row;
        b_at += left_product * shape.b.item + column * shape.b.column;
        double sum = 0;
        for (int64_t k = 0; k < shape.inner; ++k) {
          sum += value(a, a16, a_at + k * shape.a.column) * value(b, b16, b_at + k * shape.b.row);
        }
        ASSERT_NEAR(y.data()[i], sum, bound * 4) << to_string(isa) << ", element " << i;
      }
    }
  }
}

TEST(Matmul, EverySizeAndEitherSideTransposed) {
  SCOPED_TRACE(repeat_command());
  for (const auto& [rows, inner, columns] : kSizes) {
    const auto a = random_floats(2 * rows * inner, 1), b = random_floats(2 * inner * columns, 2);
    for (const bool a_turned : {false, true}) {
      for (const bool b_turned : {false, true}) {
        MatmulShape shape{
            .rows = rows, .inner = inner, .columns = columns, .dimensions = {}, .a = {}, .b = {}};
        shape.a = {0, a_turned ? 1 : inner, a_turned ? rows : 1, rows * inner};
        shape.b = {0, b_turned ? 1 : columns, b_turned ? inner : 1, inner * columns};
        check(shape, DataType::f32, a, b, 2);
        check(shape, DataType::bf16, a, b, 2);
      }
    }
  }
}

// What is no f32 is rounded from the same sums.
TEST(Matmul, ResultsOfOtherTypesAreRoundedOnce) {
  SCOPED_TRACE(repeat_command());
  for (const auto& [rows, inner, columns] : kSizes) {
    const auto a = random_floats(2 * rows * inner, 1), b = random_floats(2 * inner * columns, 2);
    MatmulShape shape{.rows = rows, .inner = inner, .columns = columns, .dimensions = {}, .a = {}, .b = {}};
    shape.a = {0, inner, 1, rows * inner};
    shape.b = {0, columns, 1, inner * columns};
    for (const Isa isa : available_isas()) {
      const auto run = [&](void* y) {
        Workspace scratch(matmul_workspace_bytes(shape, 3));
        matmul(shape, DataType::f32, a.data(), DataType::f32, b.data(), y, 2, scratch.data(), isa,
               ThreadParallel(3));
      };
      std::vector<float> made(static_cast<size_t>(2 * rows * columns));
      shape.output = {};
      run(made.data());
      for (const ElementFormat& output : element_formats()) {
        TypedBuffer to(output, std::vector<float>(made.size()));
        shape.output = output;
        run(to.data());
        EXPECT_EQ(to.bytes(), TypedBuffer(output, made).bytes())
            << to_string(isa) << " " << to_string(output.type) << " " << rows << "x" << inner << "x"
            << columns;
      }
    }
  }
}

TEST(Matmul, HeadsAndBroadcasts) {
  SCOPED_TRACE(repeat_command());
  // Heads side by side in rows, the same b for all of a second dimension, offsets.
  const int64_t rows = 19, depth = 8, heads = 3, keys = 21;
  const auto a = random_floats(2 * 2 * rows * heads * depth + 5, 1);
  const auto b = random_floats(2 * keys * heads * depth + 7, 2);
  MatmulShape shape{.rows = rows, .inner = depth, .columns = keys, .dimensions = {}, .a = {}, .b = {}};
  shape.dimensions = {{2, rows * heads * depth, 0}, {heads, depth, depth}};
  shape.a = {5, heads * depth, 1, 2 * rows * heads * depth};
  shape.b = {7, 1, heads * depth, keys * heads * depth};
  check(shape, DataType::f32, a, b, 2);
  check(shape, DataType::bf16, a, b, 2);
  shape.b.item = 0;
  check(shape, DataType::f32, a, b, 2);
}

}  // namespace
}  // namespace ulp::kernels
