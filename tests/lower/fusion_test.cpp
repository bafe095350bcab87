// Which steps a graph becomes, as text.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel = 3, int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2));
}

/// The ops of a plan in order, with what is fused: "convert conv+relu conv+add".
std::string ops(const runtime::Plan& plan) {
  std::string text;
  for (const runtime::Step& step : plan.steps) {
    if (!text.empty()) text += ' ';
    text += to_string(step.op);
    if (step.constants.contains("weight") && step.inputs.size() == 2) text += "+add";
    if (step.op == runtime::Op::relu) continue;
    const runtime::Activation activation = activation_of(step);
    if (activation != runtime::Activation::none && !is_smooth_activation(activation)) {
      text += std::string("+") + to_string(activation);
    }
  }
  return text;
}

std::string lowered_ops(const std::shared_ptr<Net>& net, const at::Tensor& example) {
  return ops(lower(*captured(net, example)));
}

TEST(Fusion, ConvBatchNormReluIsOneStep) {
  auto net = std::make_shared<Net>();
  auto c = net->add("conv", conv(3, 8));
  auto b = net->add("bn", torch::nn::BatchNorm2d(8));
  net->body = [=](const at::Tensor& x) mutable { return torch::relu(b->forward(c->forward(x))); };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 3, 8, 8})), "convert conv+relu convert");
}

TEST(Fusion, SpellingsOfRelu6) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> spellings = {
      [](const at::Tensor& x) { return torch::nn::functional::relu6(x); },
      [](const at::Tensor& x) { return torch::hardtanh(x, 0, 6); },
      [](const at::Tensor& x) { return torch::clamp(x, 0, 6); }};
  for (const auto& spelling : spellings) {
    auto net = std::make_shared<Net>();
    auto c = net->add("conv", conv(3, 8));
    net->body = [=](const at::Tensor& x) mutable { return spelling(c->forward(x)); };
    EXPECT_EQ(lowered_ops(net, torch::randn({2, 3, 8, 8})), "convert conv+relu6 convert");
  }
}

TEST(Fusion, ResidualBlockWithProjection) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 8, 3, 2));
  auto c2 = net->add("conv2", conv(8, 8));
  auto down = net->add("down", conv(4, 8, 1, 2));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = c2->forward(torch::relu(c1->forward(x)));
    return torch::relu(y + down->forward(x));
  };
  const runtime::Plan plan = lower(*captured(net, torch::randn({2, 4, 8, 8})));
  EXPECT_EQ(ops(plan), "convert conv+relu conv conv+add+relu convert");
  EXPECT_EQ(plan.steps[2].name, "down");
  EXPECT_EQ(plan.steps[3].name, "conv2");  // the first of the two takes the sum, once the other one is ready
}

TEST(Fusion, IdentityShortcut) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 4));
  auto c2 = net->add("conv2", conv(4, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::relu(c1->forward(x));
    return torch::relu(c2->forward(y) + y);
  };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 4, 8, 8})), "convert conv+relu conv+add+relu convert");
}

TEST(Fusion, ValueThatOthersReadIsNotFusedAway) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 4));
  auto c2 = net->add("conv2", conv(4, 4));
  // conv1's result is read before relu and after it.
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = c1->forward(x);
    return c2->forward(torch::relu(y)) + y;
  };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 4, 8, 8})), "convert conv relu conv+add convert");
}

TEST(Fusion, SumOfAValueWithItselfStandsAlone) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = c1->forward(x);
    return y + y;
  };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 4, 8, 8})), "convert conv add convert");
}

TEST(Fusion, ReluBeforeTheSumIsNotMovedBehindIt) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 4));
  net->body = [=](const at::Tensor& x) mutable { return torch::relu(c1->forward(x)) + x; };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 4, 8, 8})), "convert conv+relu add convert");
}

TEST(Fusion, SumOfFourDimensionsOfOneSizeAndOfOthers) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(4, 4));
  net->body = [=](const at::Tensor& x) mutable { return c1->forward(x) + torch::avg_pool2d(x, 3, 1, 1); };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 4, 8, 8})), "convert avg_pool conv+add convert");
}

TEST(Fusion, DropoutAndFlattenBetweenLayers) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("conv1", conv(1, 4));
  auto fc = net->add("fc", torch::nn::Linear(4 * 16, 10));
  auto drop = net->add("drop", torch::nn::Dropout(0.5));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::max_pool2d(torch::relu(c1->forward(x)), 2);
    return torch::softmax(fc->forward(drop->forward(torch::flatten(y, 1))), 1);
  };
  EXPECT_EQ(lowered_ops(net, torch::randn({2, 1, 8, 8})),
            "convert conv+relu max_pool flatten linear softmax");
}

TEST(Fusion, ConstantsCarryTheParametersNames) {
  auto net = std::make_shared<Net>();
  auto c1 = net->add("stem", conv(3, 4));
  auto b = net->add("bn", torch::nn::BatchNorm2d(4));
  net->body = [=](const at::Tensor& x) mutable { return b->forward(c1->forward(x)); };
  const runtime::Plan plan =
      lower(*captured(net, torch::randn({2, 3, 8, 8})), {.metadata = {{"source", "test"}}});
  EXPECT_TRUE(plan.constants.contains("stem.weight"));
  EXPECT_TRUE(plan.constants.contains("stem.bias"));
  EXPECT_EQ(plan.constants.size(), 2U);
  EXPECT_EQ(plan.metadata.at("source"), "test");
  EXPECT_EQ(plan.metadata.at("precision"), "f32");
}

TEST(Fusion, ASharedLayerIsStoredOnce) {
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", torch::nn::Linear(6, 6));
  net->body = [=](const at::Tensor& x) mutable { return fc->forward(torch::relu(fc->forward(x))); };
  const runtime::Plan plan = lower(*captured(net, torch::randn({2, 6})));
  EXPECT_EQ(ops(plan), "linear+relu linear");
  EXPECT_EQ(plan.constants.size(), 2U);
}

TEST(Fusion, TheModelStaysAsItWas) {
  auto net = std::make_shared<Net>();
  auto c = net->add("conv", conv(3, 8));
  auto b = net->add("bn", torch::nn::BatchNorm2d(8));
  net->body = [=](const at::Tensor& x) mutable { return b->forward(c->forward(x)); };
  auto module = captured(net, torch::randn({2, 3, 8, 8}));
  std::ostringstream before, after;
  before << module->graph();
  const at::Tensor weight = c->weight.detach().clone();
  lower(*module);
  after << module->graph();
  EXPECT_EQ(before.str(), after.str());
  EXPECT_TRUE(torch::equal(weight, c->weight));
}

TEST(Fusion, ReportNamesWhatWasFolded) {
  auto net = std::make_shared<Net>();
  auto c = net->add("conv", conv(3, 8));
  auto b = net->add("bn", torch::nn::BatchNorm2d(8));
  net->body = [=](const at::Tensor& x) mutable { return b->forward(c->forward(x)); };
  graph::PassReport report;
  lower(*captured(net, torch::randn({2, 3, 8, 8})), {}, &report);
  const auto folding =
      std::ranges::find(report.parts, std::string("fold_batch_norm"), &graph::PassReport::pass);
  ASSERT_NE(folding, report.parts.end());
  EXPECT_EQ(folding->changes, std::vector<std::string>{"conv -> bn folded"});
}

/// The lines of the lowering that say what was not fused; it may fail for other reasons.
std::string unfused(const std::function<at::Tensor(torch::nn::Conv2d, const at::Tensor&)>& body) {
  auto net = std::make_shared<Net>();
  auto c = net->add("conv", conv(3, 3));
  net->body = [=](const at::Tensor& x) { return body(c, x); };
  std::string lines;
  graph::PassReport report;
  try {
    lower(*captured(net, torch::randn({2, 3, 8, 8})), {}, &report);
  } catch (const Error&) {
  }
  for (const std::string& line : report.near_misses) {
    if (line.find(" not fused into aten::conv2d 'conv2d' in conv: ") != std::string::npos)
      lines += line + "\n";
  }
  return lines;
}

TEST(Fusion, ReportSaysByNameWhyAnOpStandsAlone) {
  EXPECT_SAYS(unfused([](auto c, const auto& x) {
                const at::Tensor y = c->forward(x);
                return torch::relu(y) + torch::max_pool2d(y, 1);
              }),
              "aten::relu 'relu' not fused into aten::conv2d 'conv2d' in conv: its result is also read by "
              "aten::max_pool2d 'max_pool2d'");
  EXPECT_SAYS(unfused([](auto c, const auto& x) { return torch::max_pool2d(c->forward(x), 2); }),
              "no step of the engine ends in a pooling");
  EXPECT_SAYS(unfused([](auto c, const auto& x) { return torch::clamp(torch::relu(c->forward(x)), 0, 6); }),
              "that step has an activation already");
  EXPECT_SAYS(unfused([](auto c, const auto& x) { return torch::elu(c->forward(x)); }),
              "no step of this kind ends in aten::elu");
  EXPECT_SAYS(unfused([](auto c, const auto& x) {
                return c->forward(x) + torch::max_pool2d(x, {8, 8});
              }),
              "its operands differ in shape");
  EXPECT_EQ(unfused([](auto c, const auto& x) { return torch::relu(c->forward(x) + x); }), "");
}

}  // namespace
}  // namespace ulp::test
