// Steps over signs: engine against plain loops on every instruction set, files, and what must be refused.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "error_of.h"
#include "plain_loops.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

/// The plan's outputs are the plain loops' bits, whatever computes them.
void expect_plain_bits(const Plan& plan) {
  for (const int64_t batch : {1, 5, 18}) {
    const std::vector<Bytes> inputs = make_inputs(plan, batch, 7),
                             expected = run_plainly(plan, batch, inputs);
    for (const kernels::Isa isa : kernels::available_isas()) {
      for (const int threads : {1, 3}) {
        Engine engine(plan, {.threads = threads, .isa = kernels::to_string(isa)});
        const std::vector<Bytes> got = run_engine(engine, batch, inputs);
        for (size_t i = 0; i < expected.size(); ++i) expect_same(engine.outputs()[i], expected[i], got[i]);
      }
    }
  }
}

/// Bits of so many channels of an image, from floats.
int32_t image_bits(Builder& b, int64_t channels, int64_t side) {
  const int32_t x = b.enter(b.input({kBatch, channels, side, side}), Layout::nhwc);
  return b.signs({.op = Op::binarize, .inputs = {x}}, {"threshold"});
}

TEST(BinaryOps, ANetworkOfThemMatchesPlainLoops) {
  expect_plain_bits(small_binary_network());
}

TEST(BinaryOps, FilesKeepEveryField) {
  const Plan plan = small_binary_network();
  const TemporaryFolder folder;
  plan.save(folder / "binary.ulp");
  const Plan back = Plan::load(folder / "binary.ulp");
  ASSERT_EQ(back.steps.size(), plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    EXPECT_EQ(back.steps[i].op, plan.steps[i].op);
    EXPECT_EQ(back.steps[i].attributes, plan.steps[i].attributes) << i;
    EXPECT_EQ(back.steps[i].constants, plan.steps[i].constants) << i;
  }
  Engine engine(folder / "binary.ulp", {.threads = 2});
  const std::vector<Bytes> inputs = make_inputs(plan, 3, 7);
  EXPECT_EQ(run_engine(engine, 3, inputs), run_plainly(plan, 3, inputs));
}

TEST(BinaryOps, WindowsAndPaddings) {
  for (const kernels::BinaryPadding padding : {kernels::BinaryPadding::one, kernels::BinaryPadding::zero}) {
    for (const Window& window :
         {Window{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
          Window{.kernel_h = 5, .kernel_w = 3, .stride_h = 2, .pad_h = 3, .pad_w = 0},
          Window{.kernel_h = 3, .kernel_w = 2, .pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 3},
          Window{.stride_h = 2, .stride_w = 2}}) {
      Builder b(Numbers::f32);
      const int32_t x = image_bits(b, 19, 7);
      const BinaryConvAttributes attributes{window, 19, padding, Activation::relu};
      const int32_t y =
          b.signs({.op = Op::binary_conv, .inputs = {x}, .attributes = attributes}, {"scale"}, 18, true);
      b.output(b.leave(y));
      const BinaryConvAttributes plain{window, 19, padding};
      b.output(b.leave(
          b.signs({.op = Op::binary_conv, .inputs = {x, y}, .attributes = plain}, {"scale", "bias"}, 18)));
      b.output(
          b.signs({.op = Op::binary_conv, .inputs = {x}, .attributes = plain}, {"threshold", "flip"}, 18));
      expect_plain_bits(b.plan);
    }
  }
}

TEST(BinaryOps, RowsOfEveryRank) {
  Builder b(Numbers::f32);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{kBatch, 70}, {kBatch, 3, 70}, {kBatch, 2, 3, 70}, {6, 70}}) {
    const int32_t x = b.signs({.op = Op::binarize, .inputs = {b.input(shape)}}, {"threshold", "flip"});
    const Step step{.op = Op::binary_linear, .inputs = {x}, .attributes = BinaryLinearAttributes{70}};
    const int32_t y = b.signs(step, {"scale"}, 9);
    Step more = step;
    more.inputs.push_back(y);
    b.output(b.signs(more, {"scale", "bias"}, 9));
    b.output(b.signs(step, {"threshold", "flip"}, 9));
  }
  expect_plain_bits(b.plan);
}

TEST(BinaryOps, BitsGoInAndOut) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 2, 5, 5}, DataType::u8, Layout::nhwc);
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  b.output(b.signs({.op = Op::binary_conv, .inputs = {x}, .attributes = BinaryConvAttributes{same, 16}},
                   {"threshold"}, 24));
  b.output(b.signs({.op = Op::binarize, .inputs = {b.input({kBatch, 5, 3, 3})}}, {}));
  expect_plain_bits(b.plan);
}

TEST(BinaryOps, ProfilesNameTheKernel) {
  const Plan plan = small_binary_network();
  Engine engine(plan, {.threads = 1, .isa = "portable"});
  std::vector<Bytes> outputs;
  std::vector<void*> out;
  const std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, 1));
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  const void* in = inputs[0].data();
  int seen = 0;
  for (const StepProfile& step : engine.profile(1, {&in, 1}, out)) {
    if (step.op == "binarize") seen += step.kernel == "pack_signs_portable";
    if (step.op.starts_with("binary_")) seen += step.kernel == "binary_conv_portable";
  }
  EXPECT_EQ(seen, 8);
}

TEST(BinaryOps, ImagesOfAnyWidth) {
  Builder b(Numbers::f32);
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  const int32_t x = image_bits(b, 9, 12);
  b.output(b.leave(b.signs({.op = Op::binary_conv,
                            .inputs = {x},
                            .attributes = BinaryConvAttributes{same, 9, kernels::BinaryPadding::zero}},
                           {"scale"}, 17)));
  Plan plan = b.plan;
  plan.following.free = {{"width", 1, 12}};
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    plan.following.numbers.push_back({"/tensors/" + std::to_string(i) + "/shape/3", {{{1, 1, {1}}}}});
  Engine engine(plan, {.threads = 1});
  for (const int64_t width : {1, 5, 12}) {
    Plan fixed = b.plan;
    for (TensorInfo& tensor : fixed.tensors) tensor.shape[3] = width;
    const std::vector<Bytes> inputs = make_inputs(fixed, 2, 3), expected = run_plainly(fixed, 2, inputs);
    engine.set_sizes({{"width", width}});
    EXPECT_EQ(run_engine(engine, 2, inputs), expected) << width;
  }
}

struct BadBinaryStep {
  const char* what;
  Op op;  ///< of the first step that is changed
  std::function<void(Plan&, Step&)> change;
  const char* message;
};

void add(Plan& plan, Step& step, const char* role, const Constant& value) {
  step.constants[role] = std::string("added ") + role;
  plan.constants[std::string("added ") + role] = value;
}

TensorInfo& output(Plan& plan, const Step& step) {
  return plan.tensors[static_cast<size_t>(step.output)];
}

TensorInfo& input(Plan& plan, const Step& step) {
  return plan.tensors[static_cast<size_t>(step.inputs[0])];
}

/// Of every kind of step one; residual, bias, threshold and flip where they may be.
Plan all_kinds() {
  Builder b(Numbers::f32);
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  const int32_t x = b.input({kBatch, 12, 5, 5}, DataType::f32, Layout::nhwc);
  const int32_t bits = b.signs({.op = Op::binarize, .inputs = {x}}, {"threshold", "flip"});
  b.output(b.signs({.op = Op::binary_conv, .inputs = {bits, x}, .attributes = BinaryConvAttributes{same, 12}},
                   {"scale", "bias"}, 12));
  const int32_t rows = b.signs({.op = Op::binarize, .inputs = {b.input({kBatch, 20})}}, {});
  b.output(b.signs({.op = Op::binary_linear, .inputs = {rows}, .attributes = BinaryLinearAttributes{20}},
                   {"threshold", "flip"}, 11));
  return b.plan;
}

TEST(BinaryOps, BadOnesAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto u8 = [](std::vector<int64_t> shape, size_t bytes) {
    return constant_of(DataType::u8, std::move(shape), std::vector<uint8_t>(bytes, 0));
  };
  const Constant two = u8({2}, 2);
  const BadBinaryStep all[] = {
      {"input type", Op::binarize, [](Plan& p, Step& s) { input(p, s).type = DataType::bf16; },
       "an input of type f32"},
      {"threshold shape", Op::binarize,
       [](Plan& p, Step& s) {
         constant(p, s, "threshold").shape = {3, 4};
       },
       "'threshold' to be f32 [12]"},
      {"threshold NaN", Op::binarize,
       [&](Plan& p, Step& s) { std::memcpy(constant(p, s, "threshold").bytes.data() + 8, &nan, 4); },
       "no NaN in 'threshold', got one at 2"},
      {"flip of one byte", Op::binarize, [&](Plan& p, Step& s) { constant(p, s, "flip") = u8({1}, 1); },
       "'flip' to be u8 [2]"},
      {"flip type", Op::binarize, [](Plan& p, Step& s) { constant(p, s, "flip").type = DataType::i8; },
       "'flip' to be u8 [2]"},
      {"bytes as many as channels", Op::binarize, [](Plan& p, Step& s) { output(p, s).shape[1] = 12; },
       "[batch, 2, 5, 5]"},
      {"codes", Op::binarize, [](Plan& p, Step& s) { output(p, s).zero_point = 3; },
       "scale 1 and zero point 0"},
      {"floats out", Op::binarize, [](Plan& p, Step& s) { output(p, s).type = DataType::f32; },
       "an output of type u8"},
      {"other layout", Op::binarize, [](Plan& p, Step& s) { output(p, s).layout = Layout::plain; },
       "layout nhwc"},
      {"codes in", Op::binary_conv, [](Plan& p, Step& s) { input(p, s).scale = 0.5F; },
       "scale 1 and zero point 0"},
      {"no image", Op::binary_conv, [](Plan& p, Step& s) { input(p, s).layout = Layout::plain; },
       "layout nhwc"},
      {"too many channels", Op::binary_conv,
       [](Plan&, Step& s) { s.get<BinaryConvAttributes>().channels = 17; },
       "expected 3 bytes for 17 channels"},
      {"too few channels", Op::binary_conv,
       [](Plan&, Step& s) { s.get<BinaryConvAttributes>().channels = 8; }, "expected 1 bytes for 8 channels"},
      {"no weight", Op::binary_conv, [](Plan&, Step& s) { s.constants.erase("weight"); },
       "'weight' of 4 dimensions"},
      {"weight type", Op::binary_conv, [](Plan& p, Step& s) { constant(p, s, "weight").type = DataType::i8; },
       "'weight' to be u8 [12, 3, 3, 2]"},
      {"weight order", Op::binary_conv,
       [](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {12, 2, 3, 3};
       },
       "'weight' to be u8 [12, 3, 3, 2]"},
      {"no scale", Op::binary_conv, [](Plan&, Step& s) { s.constants.erase("scale"); }, "'scale', got none"},
      {"scale shape", Op::binary_conv,
       [](Plan& p, Step& s) {
         constant(p, s, "scale").shape = {12, 1};
       },
       "'scale' to be f32 [12, 5, 5]"},
      {"bias type", Op::binary_conv, [](Plan& p, Step& s) { constant(p, s, "bias").type = DataType::i32; },
       "'bias' to be f32 [12]"},
      {"flip of floats", Op::binary_conv, [&](Plan& p, Step& s) { add(p, s, "flip", two); },
       "'flip' needs 'threshold'"},
      {"wide window", Op::binary_conv,
       [](Plan&, Step& s) { s.get<BinaryConvAttributes>().window.dilation_h = 4; }, "a window that fits"},
      {"residual shape", Op::binary_conv,
       [](Plan& p, Step& s) {
         s.inputs[1] = p.steps[3].inputs[0], p.tensors[static_cast<size_t>(s.inputs[1])].type = DataType::f32;
       },
       "a residual like the output"},
      {"residual of bits", Op::binary_conv, [](Plan&, Step& s) { s.inputs[1] = s.inputs[0]; },
       "a residual of type f32"},
      {"output type", Op::binary_conv, [](Plan& p, Step& s) { output(p, s).type = DataType::bf16; },
       "an output of type f32"},
      {"linear of images", Op::binary_linear, [](Plan& p, Step& s) { s.inputs[0] = p.steps[0].output; },
       "layout plain"},
      {"linear channels", Op::binary_linear,
       [](Plan&, Step& s) { s.get<BinaryLinearAttributes>().channels = 25; },
       "expected 4 bytes for 25 channels"},
      {"linear weight", Op::binary_linear,
       [](Plan& p, Step& s) { constant(p, s, "weight").shape = {11, 1, 1, 3}; }, "'weight' of 2 dimensions"},
      {"threshold type", Op::binary_linear,
       [](Plan& p, Step& s) { constant(p, s, "threshold").type = DataType::f32; },
       "'threshold' to be i32 [11]"},
      {"flip shape", Op::binary_linear, [&](Plan& p, Step& s) { constant(p, s, "flip") = u8({3}, 3); },
       "'flip' to be u8 [2]"},
      {"scale and threshold", Op::binary_linear, [&](Plan& p, Step& s) { add(p, s, "scale", two); },
       "'scale' is for f32 results"},
      {"bias and threshold", Op::binary_linear, [&](Plan& p, Step& s) { add(p, s, "bias", two); },
       "'bias' is for f32 results"},
      {"activation of bits", Op::binary_linear,
       [](Plan&, Step& s) { s.get<BinaryLinearAttributes>().activation = Activation::relu; },
       "relu with 'threshold'"},
      {"residual of thresholds", Op::binary_linear, [](Plan&, Step& s) { s.inputs.push_back(s.inputs[0]); },
       "a residual is for f32 results"},
      {"floats of thresholds", Op::binary_linear, [](Plan& p, Step& s) { output(p, s).type = DataType::f32; },
       "an output of type u8"}};
  const Plan good = all_kinds();
  ASSERT_NO_THROW(good.verify());
  for (const BadBinaryStep& bad : all) {
    Plan plan = good;
    const auto step = std::ranges::find(plan.steps, bad.op, &Step::op);
    ASSERT_NE(step, plan.steps.end());
    bad.change(plan, *step);
    EXPECT_SAYS(ulp::test::error_of([&] { plan.verify(); }), bad.message) << bad.what;
  }
}

TEST(BinaryOps, ASmallFileTakesNoGreatTables) {
  // A weight of a byte, a scale for each of many pixels, which the file would have to hold.
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 1, 1, 1}, DataType::u8, Layout::nhwc);
  const Window wide{.pad_h = kMaxWindow / 2, .pad_w = 1};
  b.output(b.signs({.op = Op::binary_conv,
                    .inputs = {x},
                    .attributes = BinaryConvAttributes{wide, 1, kernels::BinaryPadding::zero}},
                   {"scale"}, 1));
  EXPECT_SAYS(ulp::test::error_of([&] { Engine engine(b.plan, {.max_constant_bytes = 1 << 20}); }),
              "max_constant_bytes");
}

TEST(BinaryOps, SurviveEveryOtherShapeOfTheirConstants) {
  ulp::runtime::testing::expect_other_shapes_survived(all_kinds());
}

}  // namespace
}  // namespace ulp::runtime
