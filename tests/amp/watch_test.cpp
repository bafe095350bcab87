// Steps, samples, gradients: what NumericsWatch counts, and that it leaves no trace in the run.
#include "ulp/amp/watch/watch.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>
#include <stdexcept>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/formats/convert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using namespace ulp::amp;
namespace nn = torch::nn;

struct NetImpl : nn::Module {
  NetImpl() {
    torch::manual_seed(4);
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    fc = register_module("fc", nn::Linear(4 * 16, 3));
  }
  at::Tensor forward(at::Tensor x) { return fc(torch::relu(norm(conv(x))).flatten(1)); }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear fc{nullptr};
};
TORCH_MODULE(Net);

at::Tensor images() {
  torch::manual_seed(9);
  return torch::randn({5, 2, 4, 4});
}

at::Tensor loss_of(const at::Tensor& logits) {
  return nn::functional::cross_entropy(logits.to(at::kFloat), torch::tensor({0, 1, 2, 0, 1}));
}

/// One step of a parameter whose gradient is given.
void step_with(NumericsWatch& watch, at::Tensor& parameter, const at::Tensor& gradient, double scale = 1,
               StepResult result = StepResult::stepped) {
  auto step = watch.begin_step(scale);
  parameter.mutable_grad() = gradient;
  step.gradients();
  step.end(result);
}

TEST(NumericsWatch, GradientSharesAreThoseOfCastingEachValue) {
  const auto& fp16 = ulp::formats::find("fp16");
  torch::manual_seed(1);
  const at::Tensor unscaled =
      torch::randn({4000}) * torch::exp2(torch::arange(4000) % 50 - 36).to(at::kFloat);
  const double scale = 4096;
  double lost[2] = {0, 0}, over = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const double v = unscaled[i].item<double>();
    lost[0] += ulp::formats::round_to_format(fp16, v) == 0 ? 1 : 0;
    lost[1] += ulp::formats::round_to_format(fp16, v * scale) == 0 ? 1 : 0;
    over += std::isinf(ulp::formats::round_to_format(fp16, v * scale)) ? 1 : 0;
  }
  at::Tensor w = torch::zeros({4000}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}});
  step_with(watch, w, unscaled * scale, scale);
  const GradientSample& sample = watch.summary().samples.at(0);
  EXPECT_EQ(sample.before.underflow, lost[0] / 4000);
  EXPECT_EQ(sample.after.underflow, lost[1] / 4000);
  EXPECT_EQ(sample.after.overflow, over / 4000);
  EXPECT_GT(lost[0], lost[1]);
  EXPECT_GT(over, 0);
  EXPECT_EQ(sample.amax, unscaled.abs().max().item<double>());
  EXPECT_EQ(watch.summary().gradients.at(0).stats.total(), 4000);
}

TEST(NumericsWatch, JoinsSamplesOfDifferentScales) {
  at::Tensor w = torch::zeros({2}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}}, {.every = 1});
  step_with(watch, w, torch::tensor({3.0, 0.0}) * 64, 64);
  step_with(watch, w, torch::tensor({3.0, 0.5}) * 8, 8);
  const auto& stats = watch.summary().all_gradients;
  EXPECT_EQ(stats.amax, 3.0);
  EXPECT_EQ(stats.binades[151].lower + stats.binades[151].upper, 2);  // 3 is in (2, 4]
  EXPECT_EQ(stats.zeros, 1);
  EXPECT_EQ(watch.summary().samples.at(0).zeros, 0.5);
}

TEST(NumericsWatch, ReadsTransposedHalfAndSparseGradients) {
  at::Tensor a = torch::zeros({3, 2}).requires_grad_(), b = torch::zeros({4}, at::kBFloat16).requires_grad_(),
             c = torch::zeros({5, 2}).requires_grad_(), none = torch::zeros({7}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"a", a}, {"b", b}, {"c", c}, {"none", none}});
  auto step = watch.begin_step();
  a.mutable_grad() = torch::ones({2, 3}).t();
  b.mutable_grad() = torch::full({4}, 5.0, at::kBFloat16);
  c.mutable_grad() = torch::sparse_coo_tensor(torch::tensor({{1, 1}}), torch::ones({2, 2}), {5, 2});
  step.gradients();
  step.end();
  const auto& gradients = watch.summary().gradients;
  EXPECT_EQ(gradients[0].stats.total(), 6);
  EXPECT_EQ(gradients[1].stats.amax, 5);
  EXPECT_EQ(gradients[2].stats.amax, 2);  // both entries of row 1, summed
  EXPECT_EQ(gradients[3].stats.total(), 0);
}

TEST(NumericsWatch, SamplesEveryNthStepAndRegistersNothingInBetween) {
  Net net;
  NumericsWatch watch(*net, {.every = 3});
  ASSERT_FALSE(at::hasCallbacks());
  std::vector<bool> sampled;
  for (int i = 0; i < 7; ++i) {
    auto step = watch.begin_step();
    EXPECT_EQ(at::hasCallbacks(), i % 3 == 0) << i;
    sampled.push_back(step.sampled());
    loss_of(net(images())).backward();
    step.gradients();
    EXPECT_FALSE(at::hasCallbacks());
    step.end();
  }
  EXPECT_EQ(sampled, (std::vector<bool>{true, false, false, true, false, false, true}));
  EXPECT_EQ(watch.summary().samples.size(), 3u);
  EXPECT_EQ(watch.summary().steps.size(), 7u);
}

TEST(NumericsWatch, AContinuedRunKeepsItsNumbers) {
  at::Tensor w = torch::zeros({2}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}}, {.every = 4});
  std::vector<bool> sampled;
  for (int64_t number = 6; number < 10; ++number) {
    auto step = watch.begin_step(1, number);
    sampled.push_back(step.sampled());
    step.end();
  }
  EXPECT_EQ(sampled, (std::vector<bool>{true, false, true, false}));  // the first, and 8
  EXPECT_EQ(watch.summary().steps.front().step, 6);
  watch.begin_step().end();
  EXPECT_EQ(watch.summary().steps.back().step, 10);
}

TEST(NumericsWatch, NamesOpsByTheModuleTheyRunIn) {
  Net net;
  const at::Tensor x = images();
  NumericsWatch watch(*net);
  auto step = watch.begin_step(4);
  (loss_of(net(x)) * 4).backward();
  step.gradients();
  step.end();
  std::set<std::string> seen;
  for (const OpStats& op : watch.summary().ops) {
    seen.insert((op.place.pass == Pass::forward ? "f " : "b ") + op.place.describe());
    EXPECT_GT(op.stats.total(), 0) << op.place.describe();
  }
  for (const char* name :
       {"f aten::conv2d in conv", "f aten::batch_norm in norm", "f aten::relu", "f aten::addmm in fc",
        "b aten::convolution_backward of ConvolutionBackward0 in conv"}) {
    EXPECT_TRUE(seen.contains(name)) << name << " is not among " << testing::PrintToString(seen);
  }
  EXPECT_EQ(watch.summary().ops[0].place.op, "aten::conv2d");
}

TEST(NumericsWatch, OpsThatComputeNothingAreLeftOut) {
  Net net;
  NumericsWatch watch(*net);
  auto step = watch.begin_step();
  torch::empty({3}).detach_();
  torch::ones({3}).detach().view({1, 3});
  step.end();
  ASSERT_EQ(watch.summary().ops.size(), 1u);
  EXPECT_EQ(watch.summary().ops[0].place.op, "aten::ones");
}

TEST(NumericsWatch, NamesTheNodesOfAGraphModule) {
  Net net;
  const auto graph = ulp::capture(net, {images()});
  NumericsWatch watch(*graph);
  auto step = watch.begin_step();
  loss_of(graph->forward(images())).backward();
  step.gradients();
  step.end();
  std::set<std::string> forward, backward;
  for (const OpStats& op : watch.summary().ops) {
    if (op.place.node.empty()) continue;
    (op.place.pass == Pass::forward ? forward : backward).insert(op.place.node + " " + op.place.path);
  }
  EXPECT_FALSE(backward.empty());
  for (const auto& node : graph->graph().nodes()) {
    if (!node->is("aten::conv2d") && !node->is("aten::linear")) continue;
    EXPECT_TRUE(forward.contains(node->name() + " " + node->scope)) << node->name();
    EXPECT_TRUE(backward.contains(node->name() + " " + node->scope)) << node->name();
  }
}

TEST(NumericsWatch, AStrideLooksAtOtherOpsInTheNextSample) {
  Net net;
  const auto ops_after = [&](int64_t stride, int samples) {
    NumericsWatch watch(*net, {.every = 1, .op_stride = stride});
    for (int i = 0; i < samples; ++i) {
      net->zero_grad();  // else adding to what is there would be an op of later samples only
      auto step = watch.begin_step();
      loss_of(net(images())).backward();
      step.gradients();
      step.end();
    }
    std::set<std::string> names;
    for (const OpStats& op : watch.summary().ops) names.insert(op.place.describe());
    return names;
  };
  const auto all = ops_after(1, 1);
  EXPECT_LT(ops_after(3, 1).size(), all.size() / 2);
  EXPECT_EQ(ops_after(3, 3), all);
}

TEST(NumericsWatch, DoesNotChangeTheRun) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> results[2];
    for (const bool watched : {false, true}) {
      Net net;
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      GradScaler scaler({.init_scale = 1024.0});
      NumericsWatch watch(*net, {.every = 2});
      for (int i = 0; i < 5; ++i) {
        std::optional<NumericsWatch::Step> step;
        if (watched) step.emplace(watch.begin_step(scaler.get_scale()));
        optimizer.zero_grad();
        at::Tensor logits;
        {
          const Autocast guard(at::kCPU, dtype == at::kHalf ? at::kHalf : at::kBFloat16, dtype != at::kFloat);
          logits = net(images());
        }
        const at::Tensor loss = loss_of(logits);
        scaler.scale(loss).backward();
        if (step) step->gradients();
        const StepResult result = scaler.step(optimizer);
        scaler.update();
        if (step) step->end(result);
        results[watched].push_back(loss.detach());
      }
      for (const at::Tensor& p : net->parameters()) results[watched].push_back(p.detach().clone());
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(torch::equal(results[0][i], results[1][i])) << i;
  }
}

TEST(NumericsWatch, AnExceptionLeavesNoCallbackBehind) {
  Net net;
  const auto graph = ulp::capture(net, {images()});
  NumericsWatch watch(*graph, {.every = 1});
  const auto fail_in_step = [&] {
    auto step = watch.begin_step();
    graph->forward(images());
    graph->forward(torch::zeros({5, 7}));  // a wrong shape
  };
  EXPECT_THROW(fail_in_step(), ulp::Error);
  EXPECT_FALSE(at::hasCallbacks());
  EXPECT_TRUE(watch.summary().steps.empty());
  auto step = watch.begin_step();  // and the next one works
  loss_of(graph->forward(images())).backward();
  step.gradients();
  step.end();
  EXPECT_EQ(watch.summary().steps.size(), 1u);
}

TEST(NumericsWatch, RefusesStepsWithinSteps) {
  at::Tensor w = torch::zeros({2}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}}), other(NamedTensors{{"w", w}});
  auto step = watch.begin_step();
  EXPECT_THROW((void)watch.begin_step(), ulp::Error);
  EXPECT_THROW((void)other.begin_step(), ulp::Error);
  auto moved = std::move(step);
  EXPECT_THROW(step.end(), ulp::Error);  // NOLINT: what a moved-from step does is documented by this
  moved.end();
  other.begin_step().end();
  EXPECT_FALSE(at::hasCallbacks());
}

TEST(NumericsWatch, OptionsNameTheFieldThatIsWrong) {
  at::Tensor w = torch::zeros({2}).requires_grad_();
  const auto error = [&](const WatchOptions& options) -> std::string {
    try {
      NumericsWatch watch(NamedTensors{{"w", w}}, options);
    } catch (const ulp::Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error({.every = 0}).find("every"), std::string::npos);
  EXPECT_NE(error({.op_stride = 0}).find("op_stride"), std::string::npos);
  EXPECT_NE(error({.margin = -1}).find("margin"), std::string::npos);
  EXPECT_NE(error({.format = "fp17"}).find("fp17"), std::string::npos);
  EXPECT_NE(error({.format = "int8"}).find("int8"), std::string::npos);
  NumericsWatch watch(NamedTensors{{"w", w}});
  EXPECT_THROW((void)watch.begin_step(0), ulp::Error);
  EXPECT_EQ(watch.line(), "fp16: nothing sampled yet");
}

TEST(NumericsWatch, LineTellsTheLastSample) {
  at::Tensor w = torch::zeros({4}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}});
  step_with(watch, w, torch::tensor({1.0, 1e-8, 0.0, 1e-7}) * 1024, 1024);
  const std::string line = watch.line();
  for (const char* part : {"fp16", "33 % -> 0 % at scale 2^10", "headroom 6.0", "advised scale 2^2"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " is not in " << line;
  }
}

}  // namespace
