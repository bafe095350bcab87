// Binary networks in the engine: which steps they become, and that signs are those of the graph.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "support.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/fuse_binary.h"
#include "ulp/lower/lower.h"
#include "ulp/models/binary_resnet.h"
#include "ulp/models/registry.h"
#include "ulp/quant/binary/binary_weights.h"
#include "ulp/quant/binary/layers.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::test {
namespace {

using quant::BinaryConv2d;
using quant::BinaryLayerOptions;
using quant::BinaryLinear;
using quant::BinaryPadding;
using quant::BinaryScale;
using torch::nn::Conv2dOptions;
using torch::nn::LinearOptions;

/// "binarize binary_conv binary_linear"
std::string step_names(const runtime::Plan& plan) {
  std::string text;
  for (const runtime::Step& step : plan.steps)
    text += (text.empty() ? "" : " ") + std::string(to_string(step.op));
  return text;
}

/// Norms whose factors have both signs and are 0 here and there.
void wild_norms(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  const auto change = [](auto& norm) {
    norm.running_mean.normal_(0, 2);
    norm.running_var.uniform_(0.5, 20);
    norm.weight.normal_();
    norm.bias.normal_();
    norm.weight[0] = 0;
  };
  for (const auto& module : model.modules()) {
    if (auto* image = module->as<torch::nn::BatchNorm2dImpl>()) change(*image);
    if (auto* rows = module->as<torch::nn::BatchNorm1dImpl>()) change(*rows);
  }
}

/// Every output the same, bit for bit, on every instruction set.
void expect_same(graph::GraphModule& module, std::vector<int64_t> item, const std::string& expected_ops) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(module);
  EXPECT_EQ(step_names(plan), expected_ops) << listing(plan);
  each_run(plan, std::move(item), 1.5, [&](const at::Tensor& x, const at::Tensor& got) {
    const at::Tensor expected = module.forward(x);
    EXPECT_TRUE(got.equal(expected)) << (got - expected).abs().max();
  });
}

TEST(BinaryLowering, WholeNetworksGiveTheGraphsNumbersBitForBit) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  auto bn0 = net->add("bn0", torch::nn::BatchNorm2d(5));
  auto conv1 = net->add("conv1", BinaryConv2d(Conv2dOptions(5, 19, 3).padding(1)));
  auto bn1 = net->add("bn1", torch::nn::BatchNorm2d(19));
  auto conv2 = net->add("conv2", BinaryConv2d(Conv2dOptions(19, 33, 3).stride(2).padding(1).bias(false)));
  auto bn2 = net->add("bn2", torch::nn::BatchNorm2d(33));
  auto conv3 = net->add("conv3", BinaryConv2d(Conv2dOptions(33, 12, 2)));
  auto bn3 = net->add("bn3", torch::nn::BatchNorm1d(12 * 4));
  auto fc1 = net->add("fc1", BinaryLinear(LinearOptions(12 * 4, 21)));
  auto bn4 = net->add("bn4", torch::nn::BatchNorm1d(21));
  auto fc2 = net->add("fc2", BinaryLinear(LinearOptions(21, 6)));
  wild_norms(*net);
  net->body = [=](const at::Tensor& x) mutable {
    at::Tensor y = at::hardtanh(bn1(conv1(bn0(x))));
    y = at::relu(bn2(conv2(y))) - 0.3;
    y = at::max_pool2d(conv3(y), 2);
    return fc2(bn4(fc1(bn3(y.flatten(1)))));
  };
  const auto module = captured(net, torch::randn({2, 5, 10, 10}));
  expect_same(*module, {5, 10, 10},
              "convert binarize binary_conv binary_conv binary_conv max_pool flatten binarize binary_linear "
              "binary_linear");
}

TEST(BinaryLowering, ZeroPaddingIsZeroAndResidualsAndActivationsAreFused) {
  for (const auto padding : {BinaryPadding::one, BinaryPadding::zero}) {
    torch::manual_seed(2);
    auto net = std::make_shared<Net>();
    auto conv = net->add(
        "conv", BinaryConv2d(Conv2dOptions(9, 9, 3).padding(1), BinaryLayerOptions{.padding = padding}));
    net->body = [=](const at::Tensor& x) mutable { return at::relu(conv(x) + x); };
    expect_same(*captured(net, torch::randn({2, 9, 6, 7})), {9, 6, 7},
                "convert binarize binary_conv convert");
  }
}

TEST(BinaryLowering, EveryScaleRunsInTheStep) {
  for (const auto scale : {BinaryScale::none, BinaryScale::mean, BinaryScale::output, BinaryScale::full,
                           BinaryScale::spatial, BinaryScale::separable}) {
    torch::manual_seed(3);
    auto net = std::make_shared<Net>();
    auto conv = net->add("conv", BinaryConv2d(Conv2dOptions(4, 10, 3), BinaryLayerOptions{.scale = scale},
                                              std::vector<int64_t>{4, 5}));
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->named_parameters()) {
        if (parameter.key().find("scale_") != std::string::npos) parameter.value().uniform_(0.5, 2);
      }
    }
    net->body = [=](const at::Tensor& x) mutable { return conv(x); };
    expect_same(*captured(net, torch::randn({2, 4, 6, 7})), {4, 6, 7},
                "convert binarize binary_conv convert");
  }
}

TEST(BinaryLowering, BatchNormsAreFoldedIntoScaleAndBias) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", BinaryConv2d(Conv2dOptions(8, 8, 3).padding(1).bias(false)));
  auto bn = net->add("bn", torch::nn::BatchNorm2d(8));
  randomize_batch_norms(*net);
  net->body = [=](const at::Tensor& x) mutable { return bn(conv(x)) + x; };
  const auto module = captured(net, torch::randn({2, 8, 6, 6}));
  const runtime::Plan plan = lower(*module);
  EXPECT_EQ(step_names(plan), "convert binarize binary_conv convert") << listing(plan);
  const torch::NoGradGuard no_grad;
  each_run(plan, {8, 6, 6}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 8 * kF32);
  });
}

TEST(BinaryLowering, WhatIsNotBinaryStaysAFloatLayerAndIsNamed) {
  const auto expect = [&](const std::shared_ptr<Net>& net, std::vector<int64_t> item, const char* note) {
    const torch::NoGradGuard no_grad;
    std::vector<int64_t> sizes = item;
    sizes.insert(sizes.begin(), 2);
    const auto module = captured(net, torch::randn(sizes));
    graph::PassReport report;
    const runtime::Plan plan = lower(*module, {}, &report);
    EXPECT_EQ(step_names(plan).find("binary"), std::string::npos) << listing(plan);
    const bool noted = std::ranges::any_of(report.parts, [&](const graph::PassReport& part) {
      return std::ranges::any_of(
          part.near_misses, [&](const std::string& line) { return line.find(note) != std::string::npos; });
    });
    EXPECT_TRUE(noted) << note;
    each_run(plan, item, 1, [&](const at::Tensor& x, const at::Tensor& got) {
      EXPECT_LE(relative_error(got, module->forward(x)), 64 * kF32) << note;
    });
  };
  torch::manual_seed(5);
  auto grouped = std::make_shared<Net>();
  auto conv = grouped->add("conv", BinaryConv2d(Conv2dOptions(8, 8, 3).padding(1).groups(2)));
  grouped->body = [=](const at::Tensor& x) mutable { return conv(x); };
  expect(grouped, {8, 6, 6}, "conv runs as a float layer of signs: it has groups");
  auto ternary = std::make_shared<Net>();
  auto fc = ternary->add("fc", BinaryLinear(LinearOptions(12, 5), BinaryLayerOptions{.ternary = true}));
  ternary->body = [=](const at::Tensor& x) mutable { return fc(x); };
  expect(ternary, {12}, "fc runs as a float layer of signs: its weight is not of +1 and -1");
  const at::Tensor kernel = torch::randn({6, 4, 3}), square = torch::randn({6, 4, 3, 3});
  const auto of_body = [](const Body& body) {
    auto net = std::make_shared<Net>();
    net->body = body;
    return net;
  };
  expect(of_body([=](const at::Tensor& x) {
           return at::conv1d(quant::binarize(x), quant::binarize(kernel), {}, 1, 1);
         }),
         {4, 9}, "runs as a float layer of signs: it is a convolution of sequences");
  expect(of_body([=](const at::Tensor& x) {
           const at::Tensor padded = at::constant_pad_nd(quant::binarize(x), {1, 0, 1, 1}, 1);
           return at::conv2d(padded, quant::binarize(square));
         }),
         {4, 6, 6}, "it is padded by something other than +1 on opposite sides alike");
  expect(of_body([=](const at::Tensor& x) { return at::conv2d(x, quant::binarize(square)); }), {4, 6, 6},
         "its input does not come from ulp::binarize");
}

TEST(BinaryLowering, ABatchThatIsNotTheFirstDimensionIsMovedInFloatLayers) {
  torch::manual_seed(17);
  auto net = std::make_shared<Net>();
  auto fc1 = net->add("fc1", BinaryLinear(LinearOptions(12, 16)));
  auto fc2 = net->add("fc2", BinaryLinear(LinearOptions(16, 5)));
  net->body = [=](const at::Tensor& x) mutable {
    return fc2(fc1(x.transpose(0, 1)) - 0.25).transpose(0, 1).contiguous();
  };
  const auto module = captured(net, torch::randn({2, 3, 12}));
  const runtime::Plan plan = lower(*module);
  const torch::NoGradGuard no_grad;
  each_run(plan, {3, 12}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 64 * kF32);
  });
}

TEST(BinaryLowering, ABatchNormOfRowsNeedsNoLayerBeforeIt) {
  torch::manual_seed(18);
  auto net = std::make_shared<Net>();
  auto fc1 = net->add("fc1", BinaryLinear(LinearOptions(12, 16), BinaryLayerOptions{.ternary = true}));
  auto bn = net->add("bn", torch::nn::BatchNorm1d(16));
  auto fc2 = net->add("fc2", torch::nn::Linear(16, 5));
  randomize_batch_norms(*net);
  net->body = [=](const at::Tensor& x) mutable { return fc2(bn(torch::relu(fc1(x)))); };
  const auto module = captured(net, torch::randn({2, 12}));
  const runtime::Plan plan = lower(*module);
  const torch::NoGradGuard no_grad;
  each_run(plan, {12}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 64 * kF32);
  });
}

TEST(BinaryLowering, OpsOfBitsWithOtherNumbersAreRefused) {
  const auto refused = [](const Body& body, const char* says) {
    auto net = std::make_shared<Net>();
    net->body = body;
    const auto module = captured(net, torch::randn({2, 12}));
    EXPECT_SAYS(ulp::test::error_of([&] { lower(*module); }), says);
  };
  const auto call = [](const char* op, std::vector<c10::IValue> args) {
    torch::jit::Stack stack(args.begin(), args.end());
    c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
    return stack.at(0).toTensor();
  };
  const at::Tensor signs = quant::binarize(torch::randn({5, 12})), ones = torch::ones({5});
  refused(
      [=](const at::Tensor& x) {
        return call("ulp::binary_linear", {quant::binarize(x), 0.5 * signs, ones, c10::IValue()});
      },
      "expected a weight of +1 and -1");
  refused(
      [=](const at::Tensor& x) {
        return call("ulp::binary_linear_signs", {quant::binarize(x), signs, 0.5 * ones, ones.gt(2)});
      },
      "expected thresholds in Int");
}

TEST(BinaryLowering, DilationsAndRowsOfAnyRankRunOnBits) {
  torch::manual_seed(11);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", BinaryConv2d(Conv2dOptions(5, 7, 3).dilation(2).padding(2).stride(2)));
  net->body = [=](const at::Tensor& x) mutable { return conv(x); };
  expect_same(*captured(net, torch::randn({2, 5, 9, 8})), {5, 9, 8}, "convert binarize binary_conv convert");
  auto rows = std::make_shared<Net>();
  auto fc = rows->add("fc", BinaryLinear(LinearOptions(20, 6)));
  rows->body = [=](const at::Tensor& x) mutable { return fc(x); };
  expect_same(*captured(rows, torch::randn({2, 3, 20})), {3, 20}, "binarize binary_linear");
}

TEST(BinaryLowering, TheScaleOfActivationsStandsBehindTheLayer) {
  torch::manual_seed(12);
  auto net = std::make_shared<Net>();
  auto conv = net->add(
      "conv", BinaryConv2d(Conv2dOptions(5, 7, 3).padding(1), BinaryLayerOptions{.activation_scale = true}));
  net->body = [=](const at::Tensor& x) mutable { return conv(x); };
  const auto module = captured(net, torch::randn({2, 5, 6, 6}));
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*module);
  EXPECT_NE(step_names(plan).find("binary_conv"), std::string::npos) << listing(plan);
  each_run(plan, {5, 6, 6}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 16 * kF32);
  });
}

TEST(BinaryLowering, LearnedShiftsAndCurvesBecomeThresholds) {
  torch::manual_seed(14);
  auto net = std::make_shared<Net>();
  const auto layer = [&](const char* name, int64_t in, int64_t out) {
    return net->add(name, BinaryConv2d(Conv2dOptions(in, out, 3).padding(1).bias(false), BinaryLayerOptions{},
                                       std::vector<int64_t>{}, /*signs=*/true));
  };
  auto sign1 = net->add("sign1", quant::RSign(6)), sign2 = net->add("sign2", quant::RSign(8));
  auto conv1 = layer("conv1", 6, 8), conv2 = layer("conv2", 8, 4);
  auto bn = net->add("bn", torch::nn::BatchNorm2d(8));
  auto curve = net->add("curve", quant::RPReLU(8));
  wild_norms(*net);
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor shift : {sign1->shift, sign2->shift, curve->before, curve->after}) shift.normal_(0, 0.3);
  }
  net->body = [=](const at::Tensor& x) mutable { return conv2(sign2(curve(bn(conv1(sign1(x)))))); };
  expect_same(*captured(net, torch::randn({2, 6, 7, 7})), {6, 7, 7},
              "convert binarize binary_conv binary_conv convert");
}

TEST(BinaryGraph, OpsOfFilesCheckWhatTheyAreGiven) {
  const at::Tensor x = torch::ones({1, 2, 3, 3}), weight = torch::ones({2, 2, 3, 3}), row = torch::ones({2});
  const auto call = [](const char* op, std::vector<c10::IValue> args) {
    const auto found = c10::Dispatcher::singleton().findSchemaOrThrow(op, "");
    torch::jit::Stack stack = std::move(args);
    found.callBoxed(stack);
    return stack.at(0).toTensor();
  };
  const std::vector<int64_t> one = {1, 1}, none;
  const at::Tensor flip = torch::zeros({2}, at::kBool);
  EXPECT_EQ(call("ulp::threshold_signs", {x, row, flip, 1}).sum().item<float>(), 18);
  EXPECT_THROW(call("ulp::threshold_signs", {x, row, flip, 4}), Error);
  EXPECT_THROW(call("ulp::threshold_signs", {x, row, flip, -1}), Error);
  EXPECT_THROW(call("ulp::binary_conv2d", {x, weight, row, c10::IValue(), one, none, one, true}), Error);
  EXPECT_THROW(call("ulp::binary_linear_signs", {row, row, row, flip}), Error);
}

TEST(BinaryLowering, SignsThatOthersReadAreNumbersForThem) {
  torch::manual_seed(6);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", BinaryConv2d(Conv2dOptions(6, 6, 3).padding(1), BinaryLayerOptions{},
                                            std::vector<int64_t>{}, /*signs=*/true));
  auto next = net->add("next", BinaryConv2d(Conv2dOptions(6, 4, 3)));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor signs = quant::binarize(x);
    return at::cat({next(conv(signs)), at::avg_pool2d(signs, 3, 1) * 9}, 1);
  };
  const auto module = captured(net, torch::randn({2, 6, 5, 5}));
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*module);
  EXPECT_NE(step_names(plan).find("binary_conv"), std::string::npos) << listing(plan);
  each_run(plan, {6, 5, 5}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 16 * kF32);
  });
}

TEST(BinaryLowering, AChainThatIsNotMonotoneStaysAndIsNamed) {
  torch::manual_seed(7);
  auto net = std::make_shared<Net>();
  auto conv1 = net->add("conv1", BinaryConv2d(Conv2dOptions(6, 6, 3).bias(false)));
  auto conv2 = net->add("conv2", BinaryConv2d(Conv2dOptions(6, 6, 3).bias(false)));
  net->body = [=](const at::Tensor& x) mutable { return conv2(conv1(x).abs() - 0.5); };
  const auto module = captured(net, torch::randn({2, 6, 8, 8}));
  graph::PassReport report;
  const runtime::Plan plan = lower(*module, {}, &report);
  const bool noted = std::ranges::any_of(report.parts, [](const graph::PassReport& part) {
    return std::ranges::any_of(part.near_misses, [](const std::string& line) {
      return line.find(
                 "conv1 gives numbers in place of signs: the sign of channel 0 changes more than once") !=
             std::string::npos;
    });
  });
  EXPECT_TRUE(noted);
  const torch::NoGradGuard no_grad;
  each_run(plan, {6, 8, 8}, 1,
           [&](const at::Tensor& x, const at::Tensor& got) { EXPECT_TRUE(got.equal(module->forward(x))); });
}

TEST(BinaryLowering, APreparedGraphStaysAsItIsAndStillRuns) {
  torch::manual_seed(8);
  auto net = std::make_shared<Net>();
  auto conv1 = net->add("conv1", BinaryConv2d(Conv2dOptions(3, 8, 3).padding(1)));
  auto bn = net->add("bn", torch::nn::BatchNorm2d(8));
  auto conv2 = net->add("conv2", BinaryConv2d(Conv2dOptions(8, 8, 3).padding(1)));
  wild_norms(*net);
  net->body = [=](const at::Tensor& x) mutable { return conv2(bn(conv1(x))); };
  const auto module = captured(net, torch::randn({2, 3, 8, 8}));
  const std::shared_ptr<graph::Graph> graph = module->graph().clone();
  graph::strip_training(*graph);
  EXPECT_TRUE(lowering::fuse_binary(*graph).changed());
  EXPECT_FALSE(lowering::fuse_binary(*graph).changed());
  graph::GraphModule fused(graph);
  fused.eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 3, 8, 8});
  EXPECT_TRUE(fused.forward(x).equal(module->forward(x)));
}

TEST(BinaryLowering, ConvertedTrainingRunsLikeItself) {
  torch::manual_seed(9);
  torch::nn::Sequential model(
      torch::nn::Conv2d(Conv2dOptions(3, 16, 3)), torch::nn::BatchNorm2d(16),
      torch::nn::Conv2d(Conv2dOptions(16, 16, 3).padding(1)), torch::nn::BatchNorm2d(16), torch::nn::ReLU(),
      torch::nn::Conv2d(Conv2dOptions(16, 16, 3).padding(1)), torch::nn::BatchNorm2d(16), torch::nn::ReLU(),
      torch::nn::Flatten(), torch::nn::Linear(16 * 36, 4));
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  const auto qat = quant::prepare_qat(capture(model, {x}), quant::Recipe::binary());
  for (int i = 0; i < 3; ++i) qat->forward(x);
  qat->eval();
  const torch::NoGradGuard no_grad;
  const auto converted = quant::convert_qat(qat);
  const runtime::Plan plan = lower(*converted);
  EXPECT_EQ(step_names(plan), "convert conv binarize binary_conv binary_conv flatten linear")
      << listing(plan);
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), converted->forward(x)), 1e-5);
}

TEST(BinaryLowering, IntegersAroundBinaryLayersAreThoseOfTheGraph) {
  torch::manual_seed(13);
  torch::nn::Sequential model(torch::nn::Conv2d(Conv2dOptions(3, 16, 3)), torch::nn::BatchNorm2d(16),
                              torch::nn::ReLU(), torch::nn::Conv2d(Conv2dOptions(16, 16, 3).padding(1)),
                              torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(16 * 36, 4));
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  quant::Recipe recipe = quant::Recipe::binary();
  recipe.ops = {"conv2d", "linear"};
  const auto qat = quant::prepare_qat(capture(model, {x}), recipe);
  for (int i = 0; i < 3; ++i) qat->forward(x);
  qat->eval();
  const torch::NoGradGuard no_grad;
  const auto converted = quant::convert_qat(qat);
  const runtime::Plan plan = lower(*converted);
  EXPECT_NE(step_names(plan).find("binary_conv"), std::string::npos) << listing(plan);
  runtime::Engine engine(plan);
  // One code of the last layer's input may turn where the float ops between were fused.
  EXPECT_LE(relative_error(run_engine(engine, x), converted->forward(x)), 0.02);
}

struct Bytes {
  int64_t stored = 0, fp32 = 0;
};

Bytes binary_bytes(const runtime::Plan& plan) {
  Bytes bytes;
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::binary_conv && step.op != runtime::Op::binary_linear) continue;
    for (const auto& [role, name] : step.constants)
      bytes.stored += static_cast<int64_t>(plan.constants.at(name).bytes.size());
    const auto* conv = std::get_if<runtime::BinaryConvAttributes>(&step.attributes);
    const runtime::Constant& weight = plan.constants.at(step.constants.at("weight"));
    const int64_t outputs = weight.shape[0], window = conv ? weight.shape[1] * weight.shape[2] : 1;
    const int64_t channels =
        conv ? conv->channels : std::get<runtime::BinaryLinearAttributes>(step.attributes).channels;
    bytes.fp32 += 4 * outputs * window * channels;
  }
  return bytes;
}

class BinaryModels : public ::testing::TestWithParam<std::string> {};

TEST_P(BinaryModels, RunInTheEngineInATwentyFifthOfTheBytes) {
  torch::manual_seed(10);
  const auto model = models::make_model(GetParam(), {.in_channels = 1, .num_classes = 10, .image_size = 28});
  randomize_batch_norms(*model);
  const torch::NoGradGuard no_grad;
  const auto module = captured(model, torch::randn({2, 1, 28, 28}));
  const runtime::Plan plan = lower(*module);
  const auto steps = std::ranges::count_if(plan.steps, [](const runtime::Step& step) {
    return step.op == runtime::Op::binary_conv || step.op == runtime::Op::binary_linear;
  });
  EXPECT_EQ(steps, GetParam() == "binary_lenet5"     ? 3
                   : GetParam() == "binary_resnet20" ? 18
                                                     : 16)
      << listing(plan);
  const Bytes bytes = binary_bytes(plan);
  EXPECT_LE(bytes.stored * 25, bytes.fp32) << bytes.stored << " of " << bytes.fp32;
  runtime::Engine engine(plan);
  const at::Tensor x = torch::randn({4, 1, 28, 28});
  // Rounding in float layers turns a sign that is all but 0 now and then.
  EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), 0.1);
}

TEST(BinaryLowering, ReActNetsBlocksRunOnSigns) {
  torch::manual_seed(12);
  const auto model = models::make_binary_resnet20(
      {.in_channels = 1, .num_classes = 3, .widths = {9, 16}, .convolutions = {2, 2}, .react = true});
  randomize_batch_norms(*model);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) parameter.add_(torch::randn_like(parameter) * 0.2);
  }
  const auto module = captured(model, torch::randn({2, 1, 12, 12}));
  const runtime::Plan plan = lower(*module);
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::binary_conv, &runtime::Step::op), 4) << listing(plan);
  runtime::Engine engine(plan);
  const at::Tensor x = torch::randn({4, 1, 12, 12});
  EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, BinaryModels,
                         ::testing::Values("binary_lenet5", "binary_resnet20", "birealnet"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ulp::test
