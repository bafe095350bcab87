// What the training loop owes to weights whose signs alone count: no decay, and a place in [-1, 1].
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/binary/binary_weights.h"
#include "ulp/quant/binary/layers.h"
#include "ulp/quant/qat/qat.h"

namespace {

using namespace ulp::train;
using torch::nn::Conv2dOptions;
using ulp::amp::MasterWeights;
using ulp::test::bars;
using ulp::test::run_to;
using ulp::test::weights;

torch::nn::Sequential binary_net() {
  torch::manual_seed(5);
  using ulp::quant::BinaryConv2d, ulp::quant::BinaryLinear;
  return torch::nn::Sequential(torch::nn::Conv2d(Conv2dOptions(1, 8, 3).padding(1)),
                               torch::nn::BatchNorm2d(8), BinaryConv2d(Conv2dOptions(8, 8, 3).stride(2)),
                               torch::nn::BatchNorm2d(8), torch::nn::Flatten(),
                               BinaryLinear(torch::nn::LinearOptions(8 * 9, 16)), torch::nn::BatchNorm1d(16),
                               torch::nn::Linear(16, 4));
}

/// The same in float, captured and prepared to become binary.
std::shared_ptr<ulp::quant::QatModule> binary_qat() {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Conv2d(Conv2dOptions(1, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
                            torch::nn::Conv2d(Conv2dOptions(8, 8, 3).stride(2)), torch::nn::BatchNorm2d(8),
                            torch::nn::Flatten(), torch::nn::Linear(8 * 9, 16), torch::nn::BatchNorm1d(16),
                            torch::nn::Linear(16, 4));
  return ulp::quant::prepare_qat(ulp::capture(net, {torch::zeros({2, 1, 8, 8})}),
                                 ulp::quant::Recipe::binary());
}

Task binary_task(torch::nn::Sequential net, const ulp::io::ImageDataset& data, int64_t batch) {
  return {.model = net.ptr(),
          .forward = [net](const TaskBatch& one) mutable { return net->forward(one.inputs); },
          .batches = image_stream(data, StreamOptions::training(batch, /*seed=*/1, /*augment=*/false))};
}

Task binary_task(const std::shared_ptr<ulp::quant::QatModule>& qat, const ulp::io::ImageDataset& data,
                 int64_t batch) {
  return {.model = qat,
          .forward = [qat](const TaskBatch& one) { return qat->forward(one.inputs); },
          .batches = image_stream(data, StreamOptions::training(batch, /*seed=*/1, /*augment=*/false))};
}

struct BinaryCase {
  const char* name;
  TrainOptions options;
};
std::ostream& operator<<(std::ostream& out, const BinaryCase& one) {
  return out << one.name;
}

class BinaryTraining : public ::testing::TestWithParam<BinaryCase> {
 protected:
  TrainOptions options() const {
    TrainOptions made = GetParam().options;
    made.batch = 16;
    made.augment = false;
    made.warmup = 0;
    return made;
  }
};

TEST_P(BinaryTraining, WeightsOfSignsDoNotDecay) {
  const auto data = bars();
  const auto expect = [&](auto model) {
    TrainOptions given = options();
    given.learning_rate = 0.1;
    given.weight_decay = 0.5;
    Task task = binary_task(model, data, given.batch);
    task.loss = [](const at::Tensor& y, const TaskBatch&) { return y.to(at::kFloat).sum() * 0; };
    Trainer trainer(std::move(task), given);
    const auto named = model->named_parameters();
    std::map<std::string, at::Tensor> before;
    for (const auto& one : named) before[one.key()] = one.value().detach().clone();
    run_to(trainer, 3);
    const std::vector<std::string> latent = ulp::quant::latent_weights(*model);
    ASSERT_EQ(latent.size(), 2U);
    for (const auto& one : named) {
      const bool stays = std::ranges::find(latent, one.key()) != latent.end();
      const bool zero = before[one.key()].eq(0).all().template item<bool>();
      EXPECT_EQ(one.value().equal(before[one.key()]), stays || zero) << one.key();
    }
  };
  expect(binary_net());
  if (GetParam().options.precision == "fp32") expect(binary_qat());
}

TEST_P(BinaryTraining, WeightsOfSignsStayBetweenMinusOneAndOne) {
  const auto data = bars();
  TrainOptions given = options();
  given.learning_rate = 2;
  given.epochs = 3;
  const auto net = binary_net();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.mul_(4);
  }
  Trainer trainer(binary_task(net, data, given.batch), given);
  const auto largest = [&](const char* name) {
    return net->named_parameters()[name].abs().max().item<float>();
  };
  for (int step = 0; step < 6; ++step) {
    trainer.step();
    for (const char* name : {"2.weight", "5.weight"}) EXPECT_LE(largest(name), 1.0F) << name << ' ' << step;
  }
  EXPECT_EQ(largest("2.weight"), 1.0F) << "nothing reached the bound";
  EXPECT_GT(largest("0.weight"), 1.0F);
}

TEST(BinaryNetworks, ASkippedStepLeavesWeightsOfSignsWhereTheyAre) {
  const auto data = bars();
  const auto net = binary_net();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.mul_(100);
  }
  Task task = binary_task(net, data, 16);
  task.loss = [](const at::Tensor& y, const TaskBatch&) { return y.to(at::kFloat).sum() * NAN; };
  Trainer trainer(std::move(task), {.precision = "fp16", .batch = 16, .augment = false});
  const at::Tensor before = net->named_parameters()["2.weight"].detach().clone();
  EXPECT_TRUE(ulp::amp::is_skipped(trainer.step().result));
  EXPECT_GT(before.abs().max().item<float>(), 1.0F);
  EXPECT_TRUE(net->named_parameters()["2.weight"].equal(before));
}

TEST_P(BinaryTraining, ResumedRunsGiveTheSameBits) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  TrainOptions given = options();
  given.learning_rate = 0.3;
  given.weight_decay = 0.1;
  const auto whole = binary_net(), resumed = binary_net();
  {
    Trainer trainer(binary_task(whole, data, given.batch), given);
    run_to(trainer, 4);
    trainer.save(folder / "run.ckpt");
    run_to(trainer, 8);
  }
  Trainer trainer(binary_task(resumed, data, given.batch), given);
  trainer.resume(folder / "run.ckpt");
  run_to(trainer, 8);
  EXPECT_TRUE(torch::equal(weights(*whole), weights(*resumed)));
  for (const char* name : {"2.weight", "5.weight"})
    EXPECT_LE(resumed->named_parameters()[name].abs().max().item<float>(), 1.0F) << name;
}

const BinaryCase kBinaryCases[] = {
    {"Sgd", {}},
    {"Adam", {.optimizer = Optimizer::adam}},
    {"AdamW", {.optimizer = Optimizer::adamw}},
    {"Clip", {.clip = 10.0}},
    {"MastersFp32", {.precision = "bf16", .masters = MasterWeights::fp32}},
    {"MastersSplit", {.precision = "bf16", .masters = MasterWeights::split, .optimizer = Optimizer::adamw}},
};

INSTANTIATE_TEST_SUITE_P(Options, BinaryTraining, ::testing::ValuesIn(kBinaryCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BinaryNetworks, LearnFromTheToolsOptions) {
  const auto data = bars();
  const auto model = ulp::test::small_model("binary_resnet20");
  Trainer trainer(model, data, {.optimizer = Optimizer::adam, .epochs = 3, .batch = 16, .augment = false});
  const double first = trainer.step().loss;
  run_to(trainer, trainer.total_steps() - 1);
  EXPECT_LT(trainer.step().loss, 0.5 * first);
  const auto parameters = model->named_parameters();
  for (const std::string& name : ulp::quant::latent_weights(*model))
    EXPECT_LE(parameters[name].abs().max().item<float>(), 1.0F) << name;
}

}  // namespace
