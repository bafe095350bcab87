#include "ulp/train/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support.h"
#include "ulp/amp/autocast.h"
#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"
#include "ulp/train/schedule.h"

namespace {

using namespace ulp::train;
using ulp::amp::StepResult;
using ulp::test::bars;
using ulp::test::run_to;
using ulp::test::small_model;
using ulp::test::weights;

/// A run that a plain loop can repeat: no momentum, decay or schedule.
TrainOptions plain(int64_t batch = 16) {
  return {
      .batch = batch, .learning_rate = 0.05, .momentum = 0, .weight_decay = 0, .warmup = 0, .augment = false};
}

/// The message of the error that `call` throws.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ulp::Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_says(const std::string& message, const std::string& says) {
  EXPECT_NE(message.find(says), std::string::npos) << "'" << says << "' is not in: " << message;
}

/// What the tool does without any flags, written out.
at::Tensor default_run_by_hand(bool bf16) {
  const auto data = bars();
  const auto model = small_model("resnet14");
  ulp::models::to_channels_last(*model);
  model->train();
  ulp::io::BatchLoader loader(data, {.batch_size = 16, .drop_last = true, .random_flip = true, .seed = 1});
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.2).momentum(0.9).weight_decay(5e-4).nesterov(true));
  for (int64_t step = 0; step < 8; ++step) {
    auto batch = loader.next();
    if (!batch) batch = loader.next();
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0.2 * one_cycle(step, 8));
    optimizer.zero_grad();
    at::Tensor logits;
    {
      const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, bf16);
      logits = model->forward(batch->images);
    }
    torch::nn::functional::cross_entropy(logits.to(torch::kFloat), batch->labels).backward();
    optimizer.step();
  }
  return weights(*model);
}

TEST(Trainer, TheDefaultRunIsAPlainLoopBitForBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto model = small_model("resnet14");
    const auto data = bars();
    Trainer trainer(model, data, {.precision = precision, .epochs = 2, .batch = 16});
    EXPECT_EQ(trainer.total_steps(), 8);
    EXPECT_EQ(trainer.steps_per_epoch(), 4);
    run_to(trainer, 8);
    EXPECT_TRUE(torch::equal(weights(*model), default_run_by_hand(precision == std::string("bf16"))))
        << precision;
  }
}

TEST(Trainer, EveryOptimizerLowersTheLoss) {
  const auto data = bars();
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    Trainer trainer(small_model(), data,
                    {.optimizer = optimizer, .epochs = 20, .batch = 16, .augment = false});
    const double first = trainer.step().loss;
    run_to(trainer, trainer.total_steps() - 1);
    EXPECT_LT(trainer.step().loss, 0.2 * first) << optimizer;
  }
}

TEST(Trainer, AccumulatedBatchesAreOneLargeBatch) {
  const auto data = bars();
  const auto small = small_model(), large = small_model();
  TrainOptions options = plain(8);
  options.accumulate = 4;
  Trainer in_parts(small, data, options);
  Trainer at_once(large, data, plain(32));
  EXPECT_EQ(in_parts.total_steps(), at_once.total_steps());
  EXPECT_EQ(in_parts.steps_per_epoch(), at_once.steps_per_epoch());
  for (int step = 0; step < 8; ++step) {
    const StepInfo a = in_parts.step(), b = at_once.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-5);
    EXPECT_EQ(a.epoch, b.epoch);
  }
  EXPECT_TRUE(torch::allclose(weights(*small), weights(*large), 1e-4, 1e-6));
  EXPECT_FALSE(torch::allclose(weights(*small), weights(*small_model()), 1e-2, 1e-3)) << "nothing moved";
}

TEST(Trainer, ClippingBoundsTheStep) {
  const auto data = bars();
  for (const char* precision : {"fp32", "fp16"}) {
    const auto model = small_model();
    TrainOptions options = plain();
    options.precision = precision;
    options.clip = 0.01;
    Trainer trainer(model, data, options);
    const at::Tensor before = weights(*model);
    const StepInfo info = trainer.step();
    ASSERT_TRUE(info.grad_norm.has_value());
    EXPECT_GT(*info.grad_norm, 0.1);
    EXPECT_LT(*info.grad_norm, 100) << "the norm must be that of unscaled gradients";
    const double moved = (weights(*model) - before).norm().item<double>();
    EXPECT_NEAR(moved, info.learning_rate * *options.clip, 2e-2 * info.learning_rate * *options.clip);
  }
}

TEST(Trainer, ClippingAboveTheNormChangesNothing) {
  const auto data = bars();
  const auto with = small_model(), without = small_model();
  TrainOptions options = plain();
  Trainer free(without, data, options);
  options.clip = 1e6;
  Trainer clipped(with, data, options);
  run_to(free, 4);
  run_to(clipped, 4);
  EXPECT_TRUE(torch::allclose(weights(*with), weights(*without), 1e-6, 1e-7));
}

TEST(Trainer, SkippedStepsDoNotAdvanceTheSchedule) {
  const auto data = bars();
  Trainer trainer(small_model(), data,
                  {.precision = "fp16", .batch = 16, .max_steps = 12, .init_scale = 1e30});
  double rate = 0;
  int skipped = 0, stepped = 0;
  for (int i = 0; i < 200 && !trainer.done() && stepped < 3; ++i) {
    const StepInfo info = trainer.step();
    EXPECT_DOUBLE_EQ(info.learning_rate, 0.2 * one_cycle(stepped, 12));
    rate = info.learning_rate;
    (info.result == StepResult::stepped ? stepped : skipped) += 1;
  }
  EXPECT_EQ(skipped, 12) << "a scale of 1e30 must overflow fp16 all the way";
  EXPECT_EQ(rate, 0.0);
}

/// Writes down what it is told.
struct Recorder : StepObserver {
  void begin(int64_t step, double scale) override {
    log += 'b' + std::to_string(step);
    scales.push_back(scale);
  }
  void gradients(const torch::nn::Module& model, double scale) override {
    log += 'g';
    norms.push_back(model.parameters().back().grad().norm().item<double>() / scale);
  }
  void end(const StepInfo& info) override { log += 'e' + std::to_string(info.step); }
  std::string log;
  std::vector<double> scales, norms;
};

TEST(Trainer, ObserversSeeEachStepWithItsScaledGradients) {
  const auto data = bars();
  TrainOptions options = plain();
  options.accumulate = 2;
  Recorder fp32, fp16;
  for (Recorder* recorder : {&fp32, &fp16}) {
    options.precision = recorder == &fp16 ? "fp16" : "fp32";
    Trainer trainer(small_model(), data, options);
    trainer.observe(recorder);
    run_to(trainer, 2);
    trainer.observe(nullptr);
    trainer.step();
    EXPECT_EQ(recorder->log, "b0ge0b1ge1");
  }
  EXPECT_EQ(fp32.scales[0], 1.0);
  EXPECT_EQ(fp16.scales[0], 65536.0);
  EXPECT_NEAR(fp32.norms[0], fp16.norms[0], 0.01 * fp32.norms[0]);
}

TEST(Trainer, BadOptionsNameTheField) {
  const auto data = bars();
  const auto says = [&](const TrainOptions& options, const std::string& text) {
    expect_says(error_of([&] { Trainer(small_model(), data, options); }), text);
  };
  says({.precision = "fp12"}, "bf16");
  says({.optimizer = "lion"}, "adamw");
  says({.epochs = 0}, "epochs > 0");
  says({.batch = 0}, "batch > 0");
  says({.batch = 65}, "at most 64");
  says({.batch = 16, .accumulate = 0}, "accumulate > 0");
  says({.epochs = 1, .batch = 16, .accumulate = 5}, "at most the 4 batches");
  says({.batch = 16, .learning_rate = -1}, "learning_rate > 0");
  says({.batch = 16, .momentum = 1}, "momentum");
  says({.batch = 16, .weight_decay = -1}, "weight_decay >= 0");
  says({.batch = 16, .warmup = 1}, "warmup");
  says({.batch = 16, .max_steps = -1}, "max_steps");
  says({.batch = 16, .clip = -1}, "clip > 0");
  says({.batch = 16, .clip = std::nan("")}, "clip > 0");
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRun) {
  const auto data = bars();
  Trainer trainer(small_model(), data, {.batch = 16, .learning_rate = 1e30, .warmup = 0});
  expect_says(error_of([&] { run_to(trainer, 8); }), "expected a finite loss");
}

}  // namespace
