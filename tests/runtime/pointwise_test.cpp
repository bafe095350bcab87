// pointwise steps: engine against plain loops, in every type and layout, and refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "plain_loops.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

Step pointwise(const char* program, std::vector<int32_t> inputs) {
  return {.op = Op::pointwise,
          .inputs = std::move(inputs),
          .attributes = PointwiseAttributes{.program = PointwiseText::from_text(program).value()}};
}

/// Floats within a few roundings, codes bit for bit but for ties that float64 sees on the other side.
void expect_plain(const Plan& plan) {
  plan.verify();
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int64_t batch : {1, 3, 40}) {
      Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
      const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
      const std::vector<Bytes> expected = run_plainly(plan, batch, inputs);
      const std::vector<Bytes> got = run_engine(engine, batch, inputs);
      for (size_t o = 0; o < got.size(); ++o) {
        const TensorInfo& info = engine.outputs()[o];
        const plain::View a{const_cast<std::byte*>(expected[o].data()), info};
        const plain::View b{const_cast<std::byte*>(got[o].data()), info};
        const double epsilon = info.type == DataType::bf16 ? 0x1p-8 : 0x1p-20;
        for (int64_t i = 0; i < element_count(info, batch); ++i) {
          const double bound = info.type == DataType::u8 ? info.scale : epsilon * (1 + std::abs(a.get(i)));
          if (std::isnan(a.get(i)) && std::isnan(b.get(i))) continue;
          ASSERT_NEAR(a.get(i), b.get(i), bound) << to_string(isa) << " output " << o << " element " << i;
        }
      }
    }
  }
}

TEST(PointwiseStep, ImagesConstantsAndNumbersBroadcast) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 5, 6, 7}, DataType::f32, Layout::nhwc);
  const int32_t plain = b.input({kBatch, 5, 6, 7}),
                gate = b.input({kBatch, 5, 1, 1}, DataType::f32, Layout::nhwc);
  const int32_t row = b.input({kBatch, 1, 1, 7});
  b.output(b.text(pointwise("sigmoid x1; mul x0 t0", {x, gate}), {}, Layout::nhwc));
  b.output(b.text(pointwise("sub x0 x1; square t0; mul t1 c0; add t2 0.5", {x, plain}), {{"c0", {5, 1, 1}}},
                  Layout::nhwc));
  b.output(b.text(pointwise("max x0 x1; where c0 t0 x2", {plain, row, x}), {{"c0", {6, 1}}}));
  b.output(b.text(pointwise("add x0 c0; mul t0 c1", {row}), {{"c0", {1, 5, 6, 1}}, {"c1", {7}}}));
  expect_plain(b.plan);
}

TEST(PointwiseStep, RowsTokensAndRanks) {
  Builder b(Numbers::f32);
  const int32_t ids = b.input({kBatch, 6}, DataType::i64), small = b.input({kBatch, 6}, DataType::i32);
  const int32_t rows = b.input({kBatch, 6, 9}), column = b.input({kBatch, 6, 1});
  const int32_t deep = b.input({kBatch, 2, 3, 2, 3});
  b.output(b.text(pointwise("ne x0 1; mul t0 x1", {ids, small})));
  b.output(b.text(pointwise("div x0 x1; tanh t0; add t1 c0", {rows, column}), {{"c0", {9}}}));
  b.output(b.text(pointwise("exp x0; log1p t0; neg t1; pow t2 3", {deep})));
  b.output(b.text(pointwise("add x0 x0", {rows})));
  expect_plain(b.plan);
}

TEST(PointwiseStep, OtherTypes) {
  for (const Numbers numbers : {Numbers::bf16, Numbers::u8}) {
    Builder b(numbers);
    const int32_t x = b.enter(b.input({kBatch, 6, 4, 4})), y = b.enter(b.input({kBatch, 6, 4, 4}));
    b.output(b.leave(
        b.op(Op::pointwise, {x, y}, PointwiseAttributes{.program = *PointwiseText::from_text("mul x0 x1")})));
    b.output(b.leave(
        b.op(Op::pointwise, {x}, PointwiseAttributes{.program = *PointwiseText::from_text("silu x0")})));
    expect_plain(b.plan);
  }
}

TEST(PointwiseStep, TextAndProgramAreOne) {
  const char* text = "mul x0 c0; add t0 0.5; scaled_below t1 -1e-05; where x1 t2 inf";
  EXPECT_EQ(PointwiseText::from_text(text)->text(), text);
  EXPECT_TRUE(PointwiseText::from_text("")->functions.empty());
  for (const char* bad : {"mul", "mul x0", "mul x0 x1 x2", "nonsense x0", "mul x0 x", "neg x-1", "neg y0",
                          "neg 0.5z", "neg x99999999999999999999", ";", "neg x0;;neg t0", "neg \x01"}) {
    EXPECT_FALSE(PointwiseText::from_text(bad)) << bad;
  }
}

TEST(PointwiseStep, BadStepsAreRefused) {
  Plan plan;
  plan.tensors = {{.name = "a", .shape = {kBatch, 4, 5}},
                  {.name = "b", .shape = {kBatch, 3, 5}},
                  {.name = "c", .shape = {kBatch, 5}},
                  {.name = "fixed", .shape = {7, 4, 5}}};
  plan.constants["k"] = {DataType::i8, {5}, Bytes(5)};
  plan.constants["five"] = {DataType::f32, {5}, Bytes(20)};
  const auto problem = [&](Step step) {
    try {
      static_cast<void>(plan.output_shape(step));
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const auto expect = [&](const Step& step, const char* part) {
    EXPECT_NE(problem(step).find(part), std::string::npos) << problem(step);
  };
  expect(pointwise("", {0}), "expected 1 to 24 functions");
  expect(pointwise("add x0 x1", {0}), "expected inputs below 1, got 1");
  expect(pointwise("add x0 t0", {0}), "expected functions below 0, got 0");
  expect(pointwise("add x0 c0", {0}), "expected constants below 0, got 0");
  expect(pointwise("add x0 x1", {0, 1}), "broadcast");
  expect(pointwise("add x0 x1", {0, 2}), "broadcast");
  expect(pointwise("add x0 x1", {0, 3}), "broadcast");
  Step typed = pointwise("add x0 c0", {0});
  typed.constants["c0"] = "k";
  expect(typed, "f32");
  Step hole = pointwise("add x0 c0", {0});
  hole.constants["c1"] = "five";
  expect(hole, "expected the constant 'c0'");
  std::string many = "neg x0";
  for (int i = 0; i < 24; ++i) many += "; neg t" + std::to_string(i);
  expect(pointwise(many.c_str(), {0}), "got 25");
  EXPECT_EQ(problem(pointwise("neg x0", {0})), "");
}

}  // namespace
}  // namespace ulp::runtime
