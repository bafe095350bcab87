// Pointwise programs: every function against float64, broadcasting and types against plain loops.
#include "ulp/kernels/pointwise/pointwise.h"

#include <cmath>
#include <limits>

#include "exact_pointwise.h"
#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

/// Curves are right to a share of 1, or of their argument; all others to a few roundings of the result.
double bound(PointwiseOp op, double a, double want) {
  using enum PointwiseOp;
  switch (op) {
    case tanh:
    case sigmoid:
    case erf:
      return 0x1p-21;
    case gelu:
    case gelu_tanh:
    case silu:
    case mish:
      return 0x1p-21 * std::max(1.0, std::abs(a));
    case softplus:
      return 8 * kUlp * (1 + std::abs(want));
    default:
      return 8 * kUlp * std::abs(want) + 1e-37;
  }
}

PointwiseProgram one_function(PointwiseOp op) {
  return {.inputs = 3, .literals = {}, .steps = {{.op = op, .operands = {0, 1, 2}}}};
}

std::vector<PointwiseInput> dense(size_t count) {
  PointwiseInput input;
  input.strides[0] = 1;
  return std::vector<PointwiseInput>(count, input);
}

std::vector<float> run(PointwiseOp op, const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& c, Isa isa) {
  const int64_t sizes[] = {1};
  const Pointwise kernel(one_function(op), dense(3), sizes, DataType::f32, {}, isa);
  std::vector<float> y(a.size());
  const void* const inputs[] = {a.data(), b.data(), c.data()};
  kernel.run(inputs, y.data(), static_cast<int64_t>(a.size()), ThreadParallel(2));
  return y;
}

bool is_close(double got, double want, double bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || std::abs(want) > 3.4028235e38) return got == (want < 0 ? -kInf : kInf);
  return std::abs(got - want) <= bound;
}

TEST(Pointwise, EveryFunctionIsFloat64WithinRounding) {
  std::vector<float> a = random_floats(3000, 1, -12, 12), b = random_floats(3000, 2, -3, 3);
  const std::vector<float> c = random_floats(3000, 3);
  const float special[] = {0.0F,  -0.0F, 1.0F,   -1.0F,   kInf, -kInf, NAN,  1e-30F, -1e-30F, 1e30F, 3e-39F,
                           88.7F, 90.0F, -87.0F, -104.0F, 0.5F, 1.5F,  2.5F, -2.5F,  20.0F,   1e-6F};
  for (size_t i = 0; i < std::size(special); ++i) {
    a[i] = a[i + 40] = special[i];
    b[i] = 2.0F;
    b[i + 40] = special[std::size(special) - 1 - i];
  }
  for (int k = 0; k < kPointwiseCount; ++k) {
    const auto op = static_cast<PointwiseOp>(k);
    for (const Isa isa : available_isas()) {
      const std::vector<float> y = run(op, a, b, c, isa);
      for (size_t i = 0; i < y.size(); ++i) {
        const double want = ulp::test::exact_pointwise(op, a[i], b[i], c[i]);
        ASSERT_TRUE(is_close(y[i], want, bound(op, a[i], want)))
            << "function " << k << " of " << a[i] << ", " << b[i] << " gives " << y[i] << ", expected "
            << want << " on " << to_string(isa) << "; " << repeat_command();
      }
    }
  }
}

TEST(Pointwise, ArithmeticIsTheSameBitsOnEveryInstructionSet) {
  const std::vector<float> a = random_floats(1000, 1, -9, 9), b = random_floats(1000, 2),
                           c = random_floats(1000, 3);
  for (int k = 0; k < kPointwiseCount; ++k) {
    const auto op = static_cast<PointwiseOp>(k);
    const std::vector<float> first = run(op, a, b, c, Isa::portable);
    for (const Isa isa : available_isas()) {
      const std::vector<float> y = run(op, a, b, c, isa);
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * 4), 0)
          << "function " << k << " on " << to_string(isa);
    }
  }
}

/// x0 * c + x1 with a result of [5, 7, 3, 11]: x0 whole, x1 [7, 1, 11] of each type, c [3, 1].
class Broadcast : public ::testing::TestWithParam<DataType> {};

double as_real(DataType type, const std::vector<uint8_t>& bytes, Affine q, int64_t i) {
  switch (type) {
    case DataType::f32:
      return reinterpret_cast<const float*>(bytes.data())[i];
    case DataType::bf16:
      return bf16_to_float(reinterpret_cast<const uint16_t*>(bytes.data())[i]);
    case DataType::u8:
      return (bytes[static_cast<size_t>(i)] - q.zero_point) * double{q.scale};
    case DataType::i32:
      return reinterpret_cast<const int32_t*>(bytes.data())[i];
    default:
      return static_cast<double>(reinterpret_cast<const int64_t*>(bytes.data())[i]);
  }
}

std::vector<uint8_t> bytes_of(DataType type, int64_t n) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n * element_bytes(type)));
  const std::vector<int32_t> ints = random_ints<int32_t>(n, 8, 0, 200);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t v = ints[static_cast<size_t>(i)];
    if (type == DataType::f32) reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(v) / 8;
    if (type == DataType::bf16)
      reinterpret_cast<uint16_t*>(bytes.data())[i] = float_to_bf16(static_cast<float>(v));
    if (type == DataType::u8) bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(v);
    if (type == DataType::i32) reinterpret_cast<int32_t*>(bytes.data())[i] = v;
    if (type == DataType::i64) reinterpret_cast<int64_t*>(bytes.data())[i] = v;
  }
  return bytes;
}

TEST_P(Broadcast, SizesOfOneRepeat) {
  const DataType type = GetParam();
  const int64_t sizes[] = {5, 7, 3, 11};
  const Affine q{type == DataType::u8 ? 0.25F : 1.0F, type == DataType::u8 ? 7 : 0};
  const auto x0 = random_floats(5 * 7 * 3 * 11, 1), c = random_floats(3, 2);
  const auto x1 = bytes_of(type, 7 * 11);
  const PointwiseProgram program{
      .inputs = 3, .literals = {}, .steps = {{PointwiseOp::mul, {0, 2, 0}}, {PointwiseOp::add, {3, 1, 0}}}};
  std::vector<PointwiseInput> inputs(3);
  inputs[0].strides = {231, 33, 11, 1};
  inputs[1] = {.type = type, .affine = q, .strides = {0, 11, 0, 1}};
  inputs[2].strides = {0, 0, 1, 0};
  for (const Isa isa : available_isas()) {
    const Pointwise kernel(program, inputs, sizes, DataType::f32, {}, isa);
    Guarded<float> y(5 * 7 * 3 * 11);
    const void* const data[] = {x0.data(), x1.data(), c.data()};
    kernel.run(data, y.data(), 5, ThreadParallel(3));
    EXPECT_TRUE(y.intact());
    const std::vector<float> got = y.values();
    for (int64_t i = 0; i < 5 * 7 * 3 * 11; ++i) {
      const int64_t b = i / 33 % 7, h = i / 11 % 3, w = i % 11;
      const double want =
          double{x0[static_cast<size_t>(i)]} * c[static_cast<size_t>(h)] + as_real(type, x1, q, b * 11 + w);
      ASSERT_NEAR(got[static_cast<size_t>(i)], want, 4 * kUlp * (2 + std::abs(want)))
          << to_string(isa) << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Broadcast,
                         ::testing::Values(DataType::f32, DataType::bf16, DataType::u8, DataType::i32,
                                           DataType::i64),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(Pointwise, AResultMayTakeTheMemoryOfADenseInput) {
  const std::vector<float> start = random_floats(5000, 4);
  const PointwiseProgram program{.inputs = 1,
                                 .literals = {2.0F},
                                 .steps = {{PointwiseOp::mul, {0, 1, 0}}, {PointwiseOp::add, {2, 0, 0}}}};
  const int64_t sizes[] = {1};
  for (const Isa isa : available_isas()) {
    std::vector<float> x = start;
    const void* const inputs[] = {x.data()};
    Pointwise(program, dense(1), sizes, DataType::f32, {}, isa)
        .run(inputs, x.data(), 5000, ThreadParallel(2));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], start[i] * 2 + start[i]) << i;
  }
}

TEST(Pointwise, CodesToCodesAreATableThatTheBlocksAgreeWith) {
  PointwiseInput input = dense(1)[0];
  input.type = DataType::u8;
  input.affine = {0.05F, 128};
  const PointwiseProgram silu{.inputs = 1, .literals = {}, .steps = {{PointwiseOp::silu, {0, 0, 0}}}};
  const Affine out{0.03F, 10};
  const int64_t sizes[] = {1};
  const auto x = random_ints<uint8_t>(3000, 5, 0, 255);
  const void* const inputs[] = {x.data()};
  for (const Isa isa : available_isas()) {
    const Pointwise by_table(silu, {input}, sizes, DataType::u8, out, isa);
    EXPECT_STREQ(by_table.kind(), "table");
    std::vector<uint8_t> y(x.size());
    by_table.run(inputs, y.data(), 3000, ThreadParallel(2));
    std::vector<float> real(x.size());
    Pointwise(silu, {input}, sizes, DataType::f32, {}, isa).run(inputs, real.data(), 3000, SerialParallel());
    for (size_t i = 0; i < y.size(); ++i) {
      const float code = __builtin_nearbyintf(real[i] * (1.0F / out.scale)) + 10;
      ASSERT_EQ(y[i], static_cast<uint8_t>(std::clamp(code, 0.0F, 255.0F))) << "code " << int{x[i]};
    }
  }
}

TEST(Pointwise, ResultsOfBf16AreRounded) {
  const auto x = random_floats(700, 6);
  const int64_t sizes[] = {1};
  const PointwiseProgram twice{.inputs = 1, .literals = {}, .steps = {{PointwiseOp::add, {0, 0, 0}}}};
  const void* const inputs[] = {x.data()};
  for (const Isa isa : available_isas()) {
    Guarded<uint16_t> y(700);
    Pointwise(twice, dense(1), sizes, DataType::bf16, {}, isa).run(inputs, y.data(), 700, SerialParallel());
    EXPECT_TRUE(y.intact());
    for (size_t i = 0; i < 700; ++i) ASSERT_EQ(y.values()[i], float_to_bf16(x[i] + x[i]));
  }
}

/// Between functions, whose later results are small again, and for any number of threads.
TEST(Pointwise, ExactReportsTheFirstIntegerThatMayBeRounded) {
  constexpr int64_t kCount = 40000;
  const int64_t sizes[] = {1};
  const PointwiseProgram back{
      .inputs = 1,
      .literals = {8388608.0F},
      .steps = {
          {PointwiseOp::add, {0, 1, 0}}, {PointwiseOp::exact, {2, 0, 0}}, {PointwiseOp::sub, {3, 1, 0}}}};
  for (const Isa isa : available_isas()) {
    for (const int workers : {1, 3}) {
      std::vector<float> x(kCount, 8388607.0F), y(kCount);
      const Pointwise program(back, dense(1), sizes, DataType::f32, {}, isa);
      const void* const inputs[] = {x.data()};
      const auto run = [&] { return program.run(inputs, y.data(), kCount, ThreadParallel(workers)); };
      EXPECT_FALSE(run().has_value());
      EXPECT_EQ(y, x);
      for (const int64_t at : {kCount - 1, int64_t{20011}, int64_t{301}, int64_t{300}}) {
        x[static_cast<size_t>(at)] = at == 300 ? std::nanf("") : 8388608.0F;
        const auto found = run();
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->element, at);
        EXPECT_EQ(std::isnan(found->value), at == 300);
      }
    }
  }
}

TEST(Pointwise, BadProgramsAreRefused) {
  const int64_t sizes[] = {1};
  const auto refused = [&](const PointwiseProgram& program, DataType result = DataType::f32) {
    EXPECT_THROW(
        Pointwise(program, dense(static_cast<size_t>(program.inputs)), sizes, result, {}, Isa::portable),
        Error);
  };
  const PointwiseStep step{PointwiseOp::add, {0, 0, 0}};
  refused({.inputs = 1, .literals = {}, .steps = {}});
  refused({.inputs = 0, .literals = {}, .steps = {step}});
  refused({.inputs = kMaxPointwiseInputs + 1, .literals = {}, .steps = {step}});
  refused({.inputs = 1, .literals = std::vector<float>(kMaxPointwiseLiterals + 1), .steps = {step}});
  refused({.inputs = 1, .literals = {}, .steps = std::vector<PointwiseStep>(kMaxPointwiseSteps + 1, step)});
  refused({.inputs = 1, .literals = {}, .steps = {{PointwiseOp::add, {0, 1, 0}}}});
  refused({.inputs = 1, .literals = {}, .steps = {{static_cast<PointwiseOp>(kPointwiseCount), {0, 0, 0}}}});
  refused({.inputs = 1, .literals = {}, .steps = {step}}, DataType::i32);
}

}  // namespace
}  // namespace ulp::kernels
