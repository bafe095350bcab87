#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

/// A change to a good plan and a part of the error it must give.
struct Bad {
  const char* what;
  std::function<void(Plan&)> change;
  const char* message;
};

void expect_refused(const Plan& good, const std::vector<Bad>& changes) {
  ASSERT_NO_THROW(good.verify());
  for (const Bad& bad : changes) {
    Plan plan = good;
    bad.change(plan);
    try {
      plan.verify();
      ADD_FAILURE() << bad.what << ": accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find("[runtime.verify] "), 0U) << text;
      EXPECT_NE(text.find(bad.message), std::string::npos) << bad.what << ": " << text;
    }
  }
}

TEST(Verify, RefusesBadStructure) {
  expect_refused(
      small_network(Numbers::f32),
      {{"input index", [](Plan& p) { p.steps[1].inputs[0] = 99; },
        "step 1 'conv1' (conv): expected tensor indices"},
       {"negative index", [](Plan& p) { p.steps[1].inputs[0] = -1; }, "expected tensor indices"},
       {"output index", [](Plan& p) { p.steps[1].output = 99; }, "expected tensor indices"},
       {"plan input", [](Plan& p) { p.inputs[0] = 99; }, "plan inputs"},
       {"plan output", [](Plan& p) { p.outputs[0] = -7; }, "plan outputs"},
       {"input twice", [](Plan& p) { p.inputs.push_back(p.inputs[0]); }, "twice"},
       {"output twice", [](Plan& p) { p.outputs.push_back(p.outputs[0]); }, "twice"},
       {"input as output", [](Plan& p) { p.outputs[0] = p.inputs[0]; }, "written by a step"},
       {"no inputs", [](Plan& p) { p.inputs.clear(); }, "inputs and outputs"},
       {"no outputs", [](Plan& p) { p.outputs.clear(); }, "inputs and outputs"},
       {"reads before written", [](Plan& p) { std::swap(p.steps[2], p.steps[3]); }, "before it is written"},
       {"written twice", [](Plan& p) { p.steps.push_back(p.steps[0]); }, "written already"},
       {"writes an input", [](Plan& p) { p.inputs.push_back(1); }, "written already"},
       {"too few inputs", [](Plan& p) { p.steps[1].inputs.clear(); }, "expected 1 to 2 inputs, got 0"},
       {"too many inputs",
        [](Plan& p) {
          p.steps[0].inputs = {0, 0};
        },
        "expected 1 to 1 inputs, got 2"},
       {"op", [](Plan& p) { p.steps[0].op = static_cast<Op>(77); }, "unknown op"},
       {"activation", [](Plan& p) { p.steps[1].activation = static_cast<Activation>(9); },
        "unknown activation"},
       {"unused window", [](Plan& p) { p.steps[0].window.pad_h = 1; }, "the op uses none"},
       {"unused groups", [](Plan& p) { p.steps[0].groups = 2; }, "the op uses none"},
       {"missing constant", [](Plan& p) { p.steps[1].constants["weight"] = "nowhere"; },
        "is not in the plan"},
       {"unknown role", [](Plan& p) { p.steps[1].constants["wait"] = p.steps[1].constants["bias"]; },
        "unknown role"}});
}

TEST(Verify, RefusesBadTensors) {
  const float inf = std::numeric_limits<float>::infinity();
  expect_refused(small_network(Numbers::u8),
                 {{"zero size", [](Plan& p) { p.tensors[2].shape[1] = 0; }, "tensor 2 'conv1'"},
                  {"overflow",
                   [](Plan& p) {
                     p.tensors[2].shape = {kBatch, 1 << 20, 1 << 20, 1 << 20};
                   },
                   "tensor 2"},
                  {"negative", [](Plan& p) { p.tensors[2].shape[2] = -8; }, "tensor 2"},
                  {"inner batch", [](Plan& p) { p.tensors[2].shape[1] = kBatch; }, "only dimension 0"},
                  {"no dimensions", [](Plan& p) { p.tensors[2].shape.clear(); }, "1 to 8 dimensions"},
                  {"type", [](Plan& p) { p.tensors[2].type = static_cast<DataType>(50); }, "unknown type"},
                  {"layout", [](Plan& p) { p.tensors[2].layout = static_cast<Layout>(5); }, "layout"},
                  {"scale 0", [](Plan& p) { p.tensors[2].scale = 0; }, "finite scale > 0"},
                  {"scale NaN", [](Plan& p) { p.tensors[2].scale = std::nanf(""); }, "finite scale > 0"},
                  {"scale inf", [=](Plan& p) { p.tensors[2].scale = inf; }, "finite scale > 0"},
                  {"zero point", [](Plan& p) { p.tensors[2].zero_point = 256; }, "[0, 255]"},
                  {"zero point", [](Plan& p) { p.tensors[2].zero_point = -1; }, "[0, 255]"},
                  {"scale on f32", [](Plan& p) { p.tensors[0].scale = 2; }, "are for u8"},
                  {"nhwc on 2-d", [](Plan& p) { p.tensors.back().layout = Layout::nhwc; }, "nhwc"}});
}

TEST(Verify, RefusesBadConvolutions) {
  const auto weight = [](Plan& p) -> Constant& { return p.constants.at("conv1.weight"); };
  expect_refused(
      small_network(Numbers::u8),
      {{"kernel size", [](Plan& p) { p.steps[1].window.kernel_h = 5; }, "constant 'weight' to be i8"},
       {"kernel 0", [](Plan& p) { p.steps[1].window.kernel_h = 0; }, "expected kernel"},
       {"stride 0", [](Plan& p) { p.steps[1].window.stride_w = 0; }, "expected kernel"},
       {"dilation", [](Plan& p) { p.steps[1].window.dilation_h = 100; }, "fits the padded input"},
       {"padding", [](Plan& p) { p.steps[1].window.pad_h = -1; }, "expected a padding"},
       {"huge padding", [](Plan& p) { p.steps[1].window.pad_h = p.steps[1].window.pad_w = 1 << 20; },
        "too large"},
       {"groups", [](Plan& p) { p.steps[1].groups = 2; }, "divide by 2 groups"},
       {"ceil mode", [](Plan& p) { p.steps[1].window.ceil_mode = true; }, "for pooling"},
       {"output shape", [](Plan& p) { p.tensors[2].shape[2] = 9; },
        "expected an output of shape [batch, 8, 8, 8]"},
       {"output type",
        [](Plan& p) {
          p.tensors[2].type = DataType::bf16, p.tensors[2].scale = 1, p.tensors[2].zero_point = 0;
        },
        "expected an output of type u8 or f32"},
       {"weight type", [&](Plan& p) { weight(p).type = DataType::u8; }, "to be i8"},
       {"weight bytes", [&](Plan& p) { weight(p).bytes.pop_back(); }, "constant 'conv1.weight'"},
       {"weight shape", [&](Plan& p) { weight(p).shape = {216}; }, "4 dimensions"},
       {"weight scale", [](Plan& p) { p.steps[1].constants.erase("weight_scale"); },
        "'weight_scale', got none"},
       {"scale value",
        [](Plan& p) {
          p.constants.at("conv1.weight_scale") =
              constant_of<float>(DataType::f32, {8}, std::vector<float>(8));
        },
        "channel 0 to be finite and > 0"},
       {"accumulator",
        [](Plan& p) {
          p.constants.at("conv1.bias") = constant_of<int32_t>(
              DataType::i32, {8}, std::vector<int32_t>(8, std::numeric_limits<int32_t>::max()));
        },
        "overflow its int32 accumulator"},
       {"residual shape", [](Plan& p) { p.steps[3].inputs[1] = 1; }, "expected a residual like the output"}});
}

TEST(Verify, RefusesBadSmallOps) {
  const auto find = [](Plan& p, Op op) -> Step& {
    for (Step& step : p.steps) {
      if (step.op == op) return step;
    }
    throw std::logic_error("no such step");
  };
  expect_refused(
      small_network(Numbers::u8),
      {{"relu", [&](Plan& p) { find(p, Op::relu).activation = Activation::none; }, "(relu): expected"},
       {"pool padding", [&](Plan& p) { find(p, Op::max_pool).window.pad_h = 2; }, "half the kernel"},
       {"pool window", [&](Plan& p) { find(p, Op::avg_pool).window.kernel_h = 9; }, "fits the padded"},
       {"dilated mean", [&](Plan& p) { find(p, Op::avg_pool).window.dilation_h = 2; }, "no dilation"},
       {"pool scale",
        [&](Plan& p) { p.tensors[static_cast<size_t>(find(p, Op::max_pool).output)].scale *= 2; },
        "keep the input's scale"},
       {"add", [&](Plan& p) { find(p, Op::add).inputs[1] = 2; }, "two inputs of one shape"},
       {"concat", [&](Plan& p) { find(p, Op::concat).inputs[1] = 2; }, "differ in their channels only"},
       {"concat of ranks", [&](Plan& p) { find(p, Op::concat).inputs[1] = find(p, Op::flatten).output; },
        "differ in their channels only"},
       {"concat scale",
        [&](Plan& p) {
          p.tensors[static_cast<size_t>(find(p, Op::concat).output)].scale = 1e-38F;
          p.tensors[static_cast<size_t>(find(p, Op::concat).inputs[0])].scale = 1e38F;
        },
        "the scale of input 0 is too far"},
       {"slice before the channels", [&](Plan& p) { find(p, Op::slice).begin = -1; },
        "inside the 8 channels"},
       {"slice of nothing", [&](Plan& p) { find(p, Op::slice).length = 0; }, "inside the 8 channels"},
       {"slice beyond the channels", [&](Plan& p) { find(p, Op::slice).begin = 5; }, "inside the 8 channels"},
       {"slice of huge numbers",
        [&](Plan& p) { find(p, Op::slice).length = std::numeric_limits<int64_t>::max(); },
        "inside the 8 channels"},
       {"slice scale",
        [&](Plan& p) { p.tensors[static_cast<size_t>(find(p, Op::slice).output)].zero_point ^= 1; },
        "keep the input's scale"},
       {"range of another op", [&](Plan& p) { find(p, Op::relu).length = 1; }, "has a range"},
       {"shuffle groups", [&](Plan& p) { find(p, Op::channel_shuffle).groups = 5; },
        "divide the 12 channels"},
       {"no groups", [&](Plan& p) { find(p, Op::channel_shuffle).groups = 0; }, "groups in [1,"},
       {"softmax on images", [&](Plan& p) { find(p, Op::softmax).inputs[0] = 2; }, "layout plain"},
       {"u8 to bf16",
        [&](Plan& p) { p.tensors[static_cast<size_t>(p.steps.back().output)].type = DataType::bf16; },
        "conversion from or to f32"}});
}

TEST(Verify, SizesOfImagesAreChecked) {
  const auto problem_of = [](const std::function<void(Step&)>& change, Op op, Window factors = {}) {
    Builder b(Numbers::f32);
    const int32_t x = b.enter(b.input({kBatch, 8, 3, 3}));
    b.output(b.leave(b.sized(op, x, 6, 6, false, factors)));
    change(b.plan.steps[1]);
    try {
      b.plan.verify();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Window two{.stride_h = 2, .stride_w = 2};
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(problem_of([](Step&) {}, Op::depth_to_space, two), "");
  expect(problem_of([](Step& s) { s.size_h = 7; }, Op::depth_to_space, two),
         "a size above 4 and up to 6, got 7");
  expect(problem_of([](Step& s) { s.size_w = 4; }, Op::depth_to_space, two),
         "a size above 4 and up to 6, got 4");
  expect(problem_of([](Step& s) { s.window.pad_h = 1; }, Op::depth_to_space, two), "strides only");
  expect(problem_of([](Step& s) { s.window.stride_h = 3; }, Op::depth_to_space, two), "divide by 3 x 2");
  expect(problem_of([](Step& s) { s.size_h = 0; }, Op::resize_nearest), "a size of at least 1 x 1");
  expect(problem_of([](Step& s) { s.size_h = 5; }, Op::resize_bilinear), "expected an output of shape");
  expect(problem_of([](Step& s) { s.align_corners = true; }, Op::resize_nearest), "is for resize_bilinear");
  expect(problem_of([](Step& s) { s.op = Op::relu, s.activation = Activation::relu; }, Op::resize_nearest),
         "has a size, but the op uses none");
}

TEST(Verify, OutputShapeServesThoseWhoBuildPlans) {
  Plan plan = small_network(Numbers::f32);
  Step step = plan.steps[1];
  step.output = -1;
  EXPECT_EQ(plan.output_shape(step), (std::vector<int64_t>{kBatch, 8, 8, 8}));
  step.inputs = {77};
  EXPECT_THROW(plan.output_shape(step), Error);
}

TEST(Verify, PoolSizesFollowPyTorch) {
  // Sizes printed by torch.nn.functional.max_pool2d of PyTorch 2.13 for kernel 3, stride 2, padding 1.
  const std::vector<std::vector<int64_t>> sizes = {{5, 3, 3}, {6, 3, 4}, {7, 4, 4}, {8, 4, 5}};
  for (const auto& row : sizes) {
    for (const bool ceil : {false, true}) {
      Builder b(Numbers::f32);
      const int32_t x = b.enter(b.input({kBatch, 1, row[0], row[0]}));
      const Window w{.kernel_h = 3,
                     .kernel_w = 3,
                     .stride_h = 2,
                     .stride_w = 2,
                     .pad_h = 1,
                     .pad_w = 1,
                     .ceil_mode = ceil};
      EXPECT_EQ(b.info(b.op(Op::max_pool, {x}, w)).shape[2], row[ceil ? 2 : 1]) << row[0] << " " << ceil;
    }
  }
}

}  // namespace
}  // namespace ulp::runtime
