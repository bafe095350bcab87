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
struct BadPlan {
  const char* what;
  std::function<void(Plan&)> change;
  const char* message;
};

ConvAttributes& conv_of(Plan& plan) {
  return plan.steps[1].get<ConvAttributes>();
}

void expect_refused(const Plan& good, const std::vector<BadPlan>& changes) {
  ASSERT_NO_THROW(good.verify());
  for (const BadPlan& bad : changes) {
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
       {"activation", [](Plan& p) { conv_of(p).activation = static_cast<Activation>(99); },
        "step 1 'conv1' (conv): expected activation to be none, relu"},
       {"attributes of another op",
        [](Plan& p) {
          p.steps[1].attributes = SliceAttributes{0, 8};
        },
        "step 1 'conv1' (conv): expected the attributes of its op"},
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
                  {"inner batch", [](Plan& p) { p.tensors[2].shape[1] = kBatch; }, "only one dimension"},
                  {"no dimensions", [](Plan& p) { p.tensors[2].shape.clear(); }, "1 to 8 dimensions"},
                  {"type", [](Plan& p) { p.tensors[2].type = static_cast<DataType>(50); }, "unknown type"},
                  {"a type that plans do not store", [](Plan& p) { p.tensors[2].type = DataType::f16; },
                   "tensor 2 'conv1': plans have no tensors of f16"},
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
      {{"kernel size", [](Plan& p) { conv_of(p).window.kernel_h = 5; }, "constant 'weight' to be i8"},
       {"kernel 0", [](Plan& p) { conv_of(p).window.kernel_h = 0; },
        "expected window.kernel_h in [1, 1048576]"},
       {"stride 0", [](Plan& p) { conv_of(p).window.stride_w = 0; }, "expected window.stride_w in [1"},
       {"dilation", [](Plan& p) { conv_of(p).window.dilation_h = 100; }, "fits the padded input"},
       {"padding", [](Plan& p) { conv_of(p).window.pad_h = -1; }, "expected window.pad_h in [0"},
       {"huge padding", [](Plan& p) { conv_of(p).window.pad_h = conv_of(p).window.pad_w = 1 << 20; },
        "too large"},
       {"groups", [](Plan& p) { conv_of(p).groups = 2; }, "divide by 2 groups"},
       {"output shape", [](Plan& p) { p.tensors[2].shape[2] = 9; },
        "expected an output of shape [batch, 8, 8, 8]"},
       {"output type",
        [](Plan& p) {
          p.tensors[2].type = DataType::bf16, p.tensors[2].scale = 1, p.tensors[2].zero_point = 0;
        },
        "expected an output of type u8 or f32"},
       {"weight type", [&](Plan& p) { weight(p).type = DataType::u8; }, "to be i8"},
       {"weight not stored", [&](Plan& p) { weight(p).type = DataType::i16; },
        "constant 'conv1.weight': plans do not store i16"},
       {"weight bytes", [&](Plan& p) { weight(p).bytes.resize(weight(p).bytes.size() - 1); },
        "constant 'conv1.weight'"},
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
        "expected an int8 layer whose sums fit 32 bits"},
       {"residual shape", [](Plan& p) { p.steps[3].inputs[1] = 1; }, "expected a residual like the output"}});
}

TEST(Verify, RefusesMovesThatLeaveTheirItem) {
  Builder b(Numbers::u8);
  const int32_t x = b.enter(b.input({kBatch, 3, 5, 4}));
  const int32_t moved = b.op(Op::move, {x}, MoveAttributes{{{15, 1}, {4, 15}}, 0, {{3}, {5}, {4}}});
  const int32_t padded =
      b.op(Op::pad, {moved}, PadAttributes{{{0, 0}, {1, 2}, {0, -1}}, kernels::PadMode::reflect});
  b.output(b.op(Op::concat, {padded, padded}, ConcatAttributes{2}));
  const auto move = [](Plan& p) -> MoveAttributes& { return p.steps[1].get<MoveAttributes>(); };
  const auto pad = [](Plan& p) -> PadAttributes& { return p.steps[2].get<PadAttributes>(); };
  constexpr int64_t kMost = int64_t{1} << 31;
  expect_refused(
      b.plan,
      {{"offset", [&](Plan& p) { move(p).offset = 1; }, "stay inside the 60 elements"},
       {"negative offset", [&](Plan& p) { move(p).offset = -1; }, "expected offset in [0"},
       {"stride", [&](Plan& p) { move(p).strides[1].stride = 16; }, "stay inside the 60 elements"},
       {"backwards", [&](Plan& p) { move(p).strides[1].stride = -15; }, "stay inside the 60 elements"},
       {"overflow", [&](Plan& p) { move(p).strides[0].stride = move(p).strides[1].stride = kMost; },
        "stay inside the 60 elements"},
       {"size 0", [&](Plan& p) { move(p).strides[0].size = 0; }, "expected strides[0].size in [1"},
       {"huge sizes",
        [&](Plan& p) {
          move(p).strides = {{kMost, 0}, {kMost, 0}, {kMost, 0}};
        },
        "expected strides of at most"},
       {"too few", [&](Plan& p) { move(p).strides.pop_back(); },
        "expected strides for 60 elements, got them for 15"},
       {"too many", [&](Plan& p) { move(p).strides.resize(17); }, "at most 16 strides"},
       {"shape", [&](Plan& p) { move(p).shape = {{60}}; }, "expected an output of shape [batch, 60]"},
       {"scale", [](Plan& p) { p.tensors[2].scale *= 2; }, "keep the input's scale"},
       {"type", [](Plan& p) { p.tensors[2].type = DataType::i32; }, "move"},
       {"mirror", [&](Plan& p) { pad(p).sides[2].after = 4; },
        "sides that mode reflect can give a dimension of 4"},
       {"nothing left", [&](Plan& p) { pad(p).sides[0].before = -3; }, "can give a dimension of 3, got -3"},
       {"sides", [&](Plan& p) { pad(p).sides.pop_back(); }, "expected sides of 3 dimensions, got 2"},
       {"huge", [&](Plan& p) { pad(p).sides[1].before = int64_t{1} << 40; }, "expected sides[1].before in"},
       {"axis", [](Plan& p) { p.steps[3].get<ConcatAttributes>().axis = 4; }, "more than 4 dimensions"},
       {"other axis", [](Plan& p) { p.steps[3].inputs[1] = 1; }, "differ in dimension 2 only"}});
}

TEST(Verify, RefusesProductsThatLeaveTheirItems) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 9, 8});
  const MatmulAttributes own{{{2, 4, 4}}, {0, 8, 1}, {0, 1, 8}, 9, 4, 9, {{2}, {9}, {9}}};
  b.output(b.text({.op = Op::matmul, .inputs = {x, x}, .attributes = own}));
  b.output(b.text({.op = Op::reduce, .inputs = {x}, .attributes = ReduceAttributes{.dims = {{2}}}}));
  const auto at = [](Plan& p) -> MatmulAttributes& { return p.steps[0].get<MatmulAttributes>(); };
  const auto dims = [](Plan& p) -> std::vector<ReducedDim>& {
    return p.steps[1].get<ReduceAttributes>().dims;
  };
  expect_refused(b.plan,
                 {{"rows", [&](Plan& p) { at(p).rows = 10; }, "strides of 'a' that stay inside its 72"},
                  {"columns", [&](Plan& p) { at(p).columns = 10; }, "strides of 'b' that stay inside its 72"},
                  {"offset", [&](Plan& p) { at(p).b.offset = 1; }, "strides of 'b'"},
                  {"backwards", [&](Plan& p) { at(p).a.row = -8; }, "strides of 'a'"},
                  {"loop", [&](Plan& p) { at(p).loops[0].size = 3; }, "strides of 'a'"},
                  {"loops", [&](Plan& p) { at(p).loops.resize(9); }, "at most 8 loops"},
                  {"shape", [&](Plan& p) { at(p).shape.pop_back(); }, "as many elements as the loops make"},
                  {"one input", [](Plan& p) { p.steps[0].inputs.pop_back(); }, "expected two inputs, or one"},
                  {"dimension", [&](Plan& p) { dims(p)[0].dim = 3; }, "different dimensions below 3, got 3"},
                  {"twice", [&](Plan& p) { dims(p).push_back({2}); }, "different dimensions"},
                  {"none", [&](Plan& p) { dims(p).clear(); }, "expected dimensions to reduce"},
                  {"places",
                   [&](Plan& p) {
                     p.steps[1].get<ReduceAttributes>().kind = kernels::ReduceKind::argmax;
                     dims(p).push_back({1});
                   },
                   "expected one dimension of at most"},
                  {"output", [](Plan& p) { p.tensors[2].type = DataType::i64; },
                   "expected tensors of type f32, bf16 or u8"}});
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
      {{"relu", [&](Plan& p) { find(p, Op::relu).get<ActivationAttributes>().activation = Activation::none; },
        "(relu): expected"},
       {"pool padding", [&](Plan& p) { find(p, Op::max_pool).get<PoolAttributes>().window.pad_h = 2; },
        "half the kernel"},
       {"pool window", [&](Plan& p) { find(p, Op::avg_pool).get<PoolAttributes>().window.kernel_h = 9; },
        "fits the padded"},
       {"dilated mean", [&](Plan& p) { find(p, Op::avg_pool).get<PoolAttributes>().window.dilation_h = 2; },
        "no dilation"},
       {"rounded largest",
        [&](Plan& p) { find(p, Op::max_pool).get<PoolAttributes>().rounding = MeanRounding::half_away; },
        "rounding is for average pooling"},
       {"rounded to another scale",
        [&](Plan& p) {
          find(p, Op::avg_pool).get<PoolAttributes>().rounding = MeanRounding::half_away;
          p.tensors[static_cast<size_t>(find(p, Op::avg_pool).output)].scale *= 2;
        },
        "keep the input's scale"},
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
       {"slice before the channels", [&](Plan& p) { find(p, Op::slice).get<SliceAttributes>().begin = -1; },
        "expected begin >= 0, got -1"},
       {"slice of nothing", [&](Plan& p) { find(p, Op::slice).get<SliceAttributes>().length = 0; },
        "expected length >= 1, got 0"},
       {"slice beyond the channels", [&](Plan& p) { find(p, Op::slice).get<SliceAttributes>().begin = 5; },
        "inside the 8 channels"},
       {"slice of huge numbers",
        [&](Plan& p) {
          find(p, Op::slice).get<SliceAttributes>().length = std::numeric_limits<int64_t>::max();
        },
        "inside the 8 channels"},
       {"slice scale",
        [&](Plan& p) { p.tensors[static_cast<size_t>(find(p, Op::slice).output)].zero_point ^= 1; },
        "keep the input's scale"},
       {"shuffle groups", [&](Plan& p) { find(p, Op::channel_shuffle).get<ShuffleAttributes>().groups = 5; },
        "divide the 12 channels"},
       {"no groups", [&](Plan& p) { find(p, Op::channel_shuffle).get<ShuffleAttributes>().groups = 0; },
        "expected groups in [1,"},
       {"softmax on images", [&](Plan& p) { find(p, Op::softmax).inputs[0] = 2; }, "layout plain"},
       {"u8 to bf16",
        [&](Plan& p) { p.tensors[static_cast<size_t>(p.steps.back().output)].type = DataType::bf16; },
        "conversion from or to f32"}});
}

TEST(Verify, SizesOfImagesAreChecked) {
  /// What is wrong with a step that once gave images of 6 x 6.
  const auto problem_of = [](Op op, const Attributes& good, const Attributes& bad) {
    Builder b(Numbers::f32);
    const int32_t x = b.enter(b.input({kBatch, 8, 3, 3}));
    b.output(b.leave(b.op(op, {x}, good)));
    b.plan.steps[1].attributes = bad;
    try {
      b.plan.verify();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](Op op, const Attributes& good, const Attributes& bad, const char* part) {
    const std::string text = problem_of(op, good, bad);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const DepthToSpaceAttributes two{{2, 2}, 6, 6};
  EXPECT_EQ(problem_of(Op::depth_to_space, two, two), "");
  expect(Op::depth_to_space, two, DepthToSpaceAttributes{{2, 2}, 7, 6}, "a size above 4 and up to 6, got 7");
  expect(Op::depth_to_space, two, DepthToSpaceAttributes{{2, 2}, 6, 4}, "a size above 4 and up to 6, got 4");
  expect(Op::depth_to_space, two, DepthToSpaceAttributes{{3, 2}, 6, 6}, "divide by 3 x 2");
  expect(Op::resize_nearest, NearestAttributes{6, 6}, NearestAttributes{0, 6}, "expected size_h >= 1, got 0");
  expect(Op::resize_bilinear, BilinearAttributes{6, 6}, BilinearAttributes{5, 6},
         "expected an output of shape");
  expect(Op::resize_nearest, NearestAttributes{6, 6}, BilinearAttributes{6, 6, true},
         "the attributes of its op");
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
      const Window w{.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
      EXPECT_EQ(b.info(b.op(Op::max_pool, {x}, PoolAttributes{{w, ceil}})).shape[2], row[ceil ? 2 : 1])
          << row[0] << " " << ceil;
    }
  }
}

}  // namespace
}  // namespace ulp::runtime
