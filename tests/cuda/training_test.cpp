// Training in low precision on a GPU: autocast, loss scaling, the watch, fp8, int8.
#include "amp/fp8_support.h"
#include "cuda/support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/op_policy.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/amp/fp8/fp8_products.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/int8/int8_linear.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/graph/capture/capture.h"

namespace {

using namespace ulp::amp;
using ulp::test::bright_corners;
using ulp::test::Cuda;
using ulp::test::distance;
using ulp::test::SmallNet;

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& classes) {
  return torch::cross_entropy_loss(logits.to(at::kFloat), classes);
}

TEST_F(Cuda, AutocastAndLossScalingTrain) {
  for (const char* name : {"bf16", "fp16", "O1"}) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    SmallNet net;
    net->to(at::kCUDA);
    const auto [x, classes] = bright_corners();
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
    GradScaler scaler({.init_scale = 1024, .enabled = std::string(name) != "bf16"});
    double first = 0, last = 0;
    for (int step = 0; step < 40; ++step) {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const auto guard = autocast_for(find_precision(name), at::kCUDA);
        const at::Tensor logits = net(x);
        EXPECT_EQ(logits.scalar_type(), std::string(name) == "bf16" ? at::kBFloat16 : at::kHalf);
        loss = cross_entropy(logits, classes);
      }
      scaler.scale(loss).backward();
      EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
      scaler.update();
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, first / 4);
  }
}

TEST_F(Cuda, AnOverflowSkipsTheStep) {
  SmallNet net;
  net->to(at::kCUDA);
  const auto [x, classes] = bright_corners();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler({.init_scale = 1e30});
  scaler.scale(cross_entropy(net(x), classes) * 1e20).backward();
  const at::Tensor before = net->head->weight.detach().clone();
  EXPECT_EQ(scaler.step(optimizer), StepResult::skipped_nonfinite);
  EXPECT_TRUE(net->head->weight.equal(before));
}

TEST_F(Cuda, CudaLikeIsLibTorchsOwnList) {
  const at::Tensor half = torch::rand({4, 4}, at::TensorOptions(at::kCUDA).dtype(at::kHalf)) + 1,
                   single = half.to(at::kFloat);
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> ops = {
      [](const at::Tensor& t) { return torch::mm(t, t); },
      [](const at::Tensor& t) { return torch::exp(t); },
      [](const at::Tensor& t) { return torch::softmax(t, 1); },
      [](const at::Tensor& t) { return t.sum(); },
      [](const at::Tensor& t) { return torch::relu(t); },
      [](const at::Tensor& t) { return torch::pow(t, 2); },
      [&](const at::Tensor& t) { return torch::addcmul(t, t, single); }};
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const at::Tensor& x : {half, single}) {
      at::ScalarType own, ours;
      {
        const Autocast guard(at::kCUDA, at::kHalf);
        own = ops[i](x).scalar_type();
      }
      {
        const Autocast guard(at::kCUDA, at::kHalf, OpPolicy::cuda_like());
        ours = ops[i](x).scalar_type();
      }
      EXPECT_EQ(own, ours) << i << ' ' << x.scalar_type();
    }
  }
}

TEST_F(Cuda, TheWatchCountsAsOnTheProcessor) {
  SmallNet net;
  const auto counted = [&](at::Device device) {
    net->to(device);
    NumericsWatch watch(*net, {.every = 1});
    auto step = watch.begin_step(1);
    net->zero_grad();
    torch::manual_seed(3);
    const at::Tensor x = torch::randn({8, 3, 8, 8}).to(device);
    cross_entropy(net(x) * 1e-4, (torch::arange(8) % 4).to(device)).backward();
    step.gradients();
    step.end();
    return watch.line();
  };
  const std::string expected = counted(at::kCPU);
  EXPECT_NE(expected.find("underflow"), std::string::npos) << expected;
  EXPECT_EQ(counted(at::kCUDA).substr(0, 12), expected.substr(0, 12));
}

TEST_F(Cuda, Fp8LayersGiveWhatTheProcessorEmulates) {
  const at::Tensor x = ulp::test::eighths({48, 64}, 1), weight = ulp::test::eighths({32, 64}, 2),
                   gradient = ulp::test::eighths({48, 32}, 3);
  for (const Fp8LayerRecipe& recipe : ulp::test::every_recipe()) {
    SCOPED_TRACE(std::string(ulp::enum_name(recipe.scaling)));
    const auto results = [&](at::Device device) {
      const at::Tensor input = x.to(device).requires_grad_(), w = weight.to(device).requires_grad_();
      const at::Tensor y = fp8_linear(input, w, {}, recipe, Fp8State::make(recipe, device));
      y.backward(gradient.to(device));
      return std::vector<at::Tensor>{y, input.grad(), w.grad()};
    };
    const auto expected = results(at::kCPU), got = results(at::kCUDA);
    for (size_t i = 0; i < 3; ++i) {
      // nvfp4 rounds its gradients at random.
      if (recipe.scaling == Fp8Scaling::nvfp4 && i > 0) {
        EXPECT_LT(distance(expected[i], got[i]), 0.5) << i;
      } else {
        EXPECT_LT(distance(expected[i], got[i]), 1e-5) << i;
      }
    }
  }
}

TEST_F(Cuda, Fp8ModelsTrainAndSayWhichProductsTheyTook) {
  for (const char* name : {"fp8:delayed", "fp8:current"}) {
    SCOPED_TRACE(name);
    SmallNet net;
    const auto [x, classes] = bright_corners();
    const auto captured = ulp::capture(*net, {x.cpu()});
    captured->to(at::kCUDA);
    Fp8Recipe recipe = Fp8Recipe::named(name);
    recipe.last = true;
    const auto fp8 = to_fp8(captured, recipe);
    fp8->train();
    torch::optim::Adam optimizer(fp8->parameters(), torch::optim::AdamOptions(0.01));
    double first = 0, last = 0;
    for (int step = 0; step < 40; ++step) {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const Autocast guard(at::kCUDA, at::kBFloat16);
        loss = cross_entropy(fp8->forward(x), classes);
      }
      loss.backward();
      optimizer.step();
      update_fp8(*fp8);
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, first / 2);
  }
  const auto choices = fp8_product_choices();
  EXPECT_FALSE(choices.empty());
  for (const Fp8ProductChoice& choice : choices) {
    EXPECT_GT(choice.emulated_seconds, 0);
    EXPECT_GT(choice.native_seconds, 0);
    EXPECT_EQ(choice.native, choice.native_seconds < choice.emulated_seconds);
  }
}

TEST_F(Cuda, Int8LayersGiveWhatTheProcessorGives) {
  const at::Tensor x = torch::randn({64, 96}), weight = torch::randn({32, 96}),
                   gradient = torch::randn({64, 32});
  for (const auto& word : ulp::EnumNames<Int8Method>::list) {
    SCOPED_TRACE(std::string(word.text));
    const auto results = [&](at::Device device) {
      const at::Tensor input = x.to(device).requires_grad_(), w = weight.to(device).requires_grad_();
      const at::Tensor y = int8_linear(input, w, {}, {.method = word.value});
      y.backward(gradient.to(device));
      return std::vector<at::Tensor>{y, input.grad(), w.grad()};
    };
    const auto expected = results(at::kCPU), got = results(at::kCUDA);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(distance(expected[i], got[i]), 0.02) << i;
  }
}

}  // namespace
