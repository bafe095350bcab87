// Bicubic resizing and grid_sample: engine against plain loops, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "error_of.h"
#include "support.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;
using kernels::GridBorder;
using kernels::GridMode;
using ulp::test::error_of;

constexpr float kEps = 0x1p-24F;
/// Inputs of make_inputs() are at most this.
constexpr float kLargest = 4;
/// The cubic weights of an axis add up to at most 1.375 in magnitude. Each is a sum of terms up to 12 and
/// takes ten roundings; eight of them meet in an element.
constexpr float kCubicBound = kLargest * 8 * 1.375F * 10 * 12 * kEps;
/// Places lie at most 32 pixels from the first one and take eight roundings. An element changes by at most 2
/// * kLargest from pixel to pixel, and a cubic curve is at most three times as steep.
constexpr float kGridBound = kCubicBound + 2 * 3 * 2 * kLargest * 1.375F * 8 * 32 * kEps;

void check_near(const Plan& plan, float bound) {
  for (const int threads : {1, 3}) {
    Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {1, 3, 20}) {
      const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
      const std::vector<Bytes> expected = run_plainly(plan, batch, inputs),
                               got = run_engine(engine, batch, inputs);
      for (size_t i = 0; i < expected.size(); ++i) {
        std::vector<float> a(expected[i].size() / 4), b(a.size());
        std::memcpy(a.data(), expected[i].data(), expected[i].size());
        std::memcpy(b.data(), got[i].data(), got[i].size());
        for (size_t k = 0; k < a.size(); ++k)
          ASSERT_LE(std::abs(a[k] - b[k]), bound) << engine.outputs()[i].name << " element " << k;
      }
    }
  }
}

TEST(Resize, BicubicIsPlainLoops) {
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{10, 14}, {3, 20}, {1, 1}, {5, 7}}) {
    for (const bool corners : {false, true}) {
      Builder b(Numbers::f32);
      const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
      const int32_t volume = b.enter(b.input({kBatch, 2, 3, 5, 7}), Layout::nhwc);
      b.output(b.leave(b.op(Op::resize_bicubic, {x}, BilinearAttributes{h, w, corners})));
      b.output(b.leave(b.op(Op::resize_bicubic, {x}, BilinearAttributes{h, w, corners, {0.4F, 1.3F}})));
      b.output(b.leave(b.op(Op::resize_bicubic, {volume}, BilinearAttributes{h, w, corners})));
      check_near(b.plan, kCubicBound);
    }
  }
}

TEST(Resize, BicubicOfBf16IsThatOfFloatsRoundedOnce) {
  Builder b(Numbers::bf16), exact(Numbers::f32);
  for (Builder* one : {&b, &exact}) {
    const int32_t x = one->enter(one->input({kBatch, 3, 5, 7}));
    one->output(one->leave(one->op(Op::resize_bicubic, {x}, BilinearAttributes{8, 9})));
  }
  Engine narrow(b.plan), wide(exact.plan);
  const std::vector<Bytes> inputs = make_inputs(b.plan, 2, 7);
  const Bytes got = run_engine(narrow, 2, inputs)[0], expected = run_engine(wide, 2, inputs)[0];
  for (size_t i = 0; i < got.size(); i += 4) {
    float a, e;
    std::memcpy(&a, got.data() + i, 4);
    std::memcpy(&e, expected.data() + i, 4);
    ASSERT_LE(std::abs(a - e), 0x1p-8F * std::abs(e)) << i / 4;
  }
}

TEST(Resize, NoStepLeavesTheImage) {
  Builder b(Numbers::f32);
  const int32_t x = b.enter(b.input({kBatch, 1, 2, 3}));
  const ResizeSteps far{static_cast<float>(kMaxWindow), static_cast<float>(kMaxWindow)};
  b.output(b.leave(b.op(Op::resize_nearest, {x}, NearestAttributes{4, 4, far, true})));
  b.output(b.leave(b.op(Op::resize_bilinear, {x}, BilinearAttributes{4, 4, false, far})));
  b.output(b.leave(b.op(Op::resize_bicubic, {x}, BilinearAttributes{4, 4, false, far})));
  Engine engine(b.plan);
  for (const Bytes& bytes : run_engine(engine, 2, make_inputs(b.plan, 2, 7))) {
    float first;
    std::memcpy(&first, bytes.data(), 4);
    EXPECT_TRUE(std::isfinite(first));
  }
}

TEST(Resize, BicubicRefusesCodes) {
  Builder b(Numbers::u8);
  const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
  b.output(b.leave(b.op(Op::resize_bicubic, {x}, BilinearAttributes{8, 9})));
  EXPECT_NE(error_of([&] { Engine engine(b.plan); }).find("expected an input of type f32 or bf16, got u8"),
            std::string::npos);
}

/// A plan that samples x [N, 3, 5, 7] at the places `factor` times those of its other input.
Plan sampled(GridMode mode, GridBorder border, bool corners, const char* factor) {
  Builder b(Numbers::f32);
  const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
  const int32_t places = b.typed(
      {.op = Op::pointwise,
       .inputs = {b.input({kBatch, 4, 6, 2})},
       .attributes =
           PointwiseAttributes{.program = *PointwiseText::from_text(std::string("mul x0 ") + factor)}},
      DataType::f32);
  b.output(b.leave(b.op(Op::grid_sample, {x, places}, GridSampleAttributes{mode, border, corners})));
  return b.plan;
}

TEST(GridSample, EveryKindIsPlainLoops) {
  for (const GridMode mode : {GridMode::bilinear, GridMode::nearest, GridMode::bicubic}) {
    for (const GridBorder border : {GridBorder::zeros, GridBorder::border, GridBorder::reflection}) {
      for (const bool corners : {false, true}) {
        SCOPED_TRACE(std::string(enum_name(mode)) + " " + enum_name(border));
        for (const char* factor : {"0.23", "0.91"})
          check_near(sampled(mode, border, corners, factor), kGridBound);
      }
    }
  }
}

TEST(GridSample, PlacesFarAwayAndNoNumbersAreSafe) {
  for (const GridMode mode : {GridMode::bilinear, GridMode::nearest, GridMode::bicubic}) {
    for (const GridBorder border : {GridBorder::zeros, GridBorder::border, GridBorder::reflection}) {
      for (const char* factor : {"3e38", "1e12", "1e30"}) {
        Plan plan = sampled(mode, border, false, factor);
        Engine engine(plan);
        const std::vector<Bytes> out = run_engine(engine, 3, make_inputs(plan, 3, 7));
        EXPECT_EQ(out.at(0).size(), size_t{3 * 3 * 4 * 6 * 4});
      }
    }
  }
}

TEST(GridSample, OtherGridsAndTypesAreRefused) {
  const auto refused = [](std::vector<int64_t> grid, Numbers numbers) {
    return error_of([&] {
      Builder b(numbers);
      const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
      b.output(b.op(Op::grid_sample, {x, b.input(std::move(grid))}, GridSampleAttributes{}));
      Engine engine(b.plan);
    });
  };
  for (const std::vector<int64_t>& grid :
       {std::vector<int64_t>{kBatch, 4, 6, 3}, {kBatch, 4, 6, 2, 1}, {2, 4, 6, 2}, {kBatch, 24, 2}})
    EXPECT_NE(refused(grid, Numbers::f32).find("expected "), std::string::npos);
  EXPECT_NE(refused({kBatch, 4, 6, 2}, Numbers::bf16).find("of type f32"), std::string::npos);
}

}  // namespace
}  // namespace ulp::runtime
