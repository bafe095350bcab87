#include "ulp/train/trainer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/optimizer/schedule_rule.h"
#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/io/batch_loader.h"
#include "ulp/train/evaluate.h"

namespace {

using namespace ulp::train;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;
using ulp::amp::ScalerKind;
using ulp::amp::ScalerSpec;
using ulp::amp::StepResult;
using ulp::test::bars;
using ulp::test::run_to;
using ulp::test::small_model;
using ulp::test::weights;

/// The tool's default curve.
double triangle(int64_t step, int64_t total) {
  return ulp::amp::rate_factor(ulp::amp::TriangleRate{.total_steps = total}, step);
}

/// A run that a plain loop can repeat: no momentum, decay or schedule.
TrainOptions plain(int64_t batch = 16) {
  return {
      .batch = batch, .learning_rate = 0.05, .momentum = 0, .weight_decay = 0, .warmup = 0, .augment = false};
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
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0.2 * triangle(step, 8));
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
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam, Optimizer::adamw}) {
    Trainer trainer(small_model(), data,
                    {.optimizer = optimizer, .epochs = 20, .batch = 16, .augment = false});
    const double first = trainer.step().loss;
    run_to(trainer, trainer.total_steps() - 1);
    EXPECT_LT(trainer.step().loss, 0.2 * first) << ulp::enum_name(optimizer);
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
  const TrainOptions options{.precision = "fp16", .init_scale = 1e7, .batch = 16, .max_steps = 30};
  Trainer trainer(small_model(), data, options);
  int skipped = 0, stepped = 0;
  while (!trainer.done()) {
    const StepInfo info = trainer.step();
    EXPECT_DOUBLE_EQ(info.learning_rate, 0.2 * triangle(stepped, 30));
    (info.result == StepResult::stepped ? stepped : skipped) += 1;
  }
  EXPECT_GT(skipped, 0) << "a scale of 1e7 must overflow fp16 at first";
  EXPECT_GT(stepped, 10);
}

TEST(Trainer, EveryScalerTrainsAndHasItsOwnScale) {
  const auto data = bars();
  const std::vector<std::pair<const char*, double>> scalers = {
      {"pytorch", 65536},   {"keras", 32768}, {"keras2", 32768}, {"apex", 65536},
      {"deepspeed", 65536}, {"static:8", 8},  {"none", 1}};
  for (const auto& [scaler, scale] : scalers) {
    Trainer trainer(small_model(), data,
                    {.precision = "fp16",
                     .scaler = ulp::amp::ScalerSpec::from_text(scaler),
                     .epochs = 8,
                     .batch = 16,
                     .augment = false});
    const StepInfo first = trainer.step();
    EXPECT_EQ(first.scale, scale) << scaler;
    run_to(trainer, trainer.total_steps() - 1);
    EXPECT_LT(trainer.step().loss, 0.5 * first.loss) << scaler;
  }
}

TEST(Trainer, EveryPrecisionTrainsAndStoresWhatItSays) {
  const auto data = bars();
  for (const ulp::amp::Precision& precision : ulp::amp::precisions()) {
    const TrainOptions options{
        .precision = precision.name, .epochs = 8, .batch = 16, .learning_rate = 0.1, .augment = false};
    if (precision.tf32) {
      EXPECT_SAYS(ulp::test::error_of([&] { Trainer(small_model(), data, options); }), "tf32");
      continue;
    }
    const auto model = small_model();
    Trainer trainer(model, data, options);
    const double first = trainer.step().loss;
    run_to(trainer, trainer.total_steps() - 1);
    EXPECT_LT(trainer.step().loss, 0.6 * first) << precision.name;
    EXPECT_EQ(model->parameters()[0].scalar_type(), precision.parameter_dtype.value_or(torch::kFloat))
        << precision.name;
  }
}

TEST(Trainer, MastersMakeNarrowParametersTrain) {
  const auto data = bars();
  for (const MasterWeights masters :
       {MasterWeights::fp32, MasterWeights::split, MasterWeights::stochastic, MasterWeights::kahan}) {
    const auto model = small_model();
    TrainOptions options{.precision = "bf16",
                         .masters = masters,
                         .moments = masters == MasterWeights::split ? MomentFormat::bf16 : MomentFormat::fp32,
                         .epochs = 8,
                         .batch = 16,
                         .augment = false};
    Trainer trainer(model, data, options);
    EXPECT_EQ(model->parameters()[0].scalar_type(), torch::kBFloat16);
    const double first = trainer.step().loss;
    run_to(trainer, trainer.total_steps() - 1);
    EXPECT_LT(trainer.step().loss, 0.5 * first) << to_string(masters);
  }
}

TEST(Trainer, SplitMastersAreFp32Masters) {
  const auto data = bars();
  at::Tensor after[2];
  double losses[2] = {};
  for (int i = 0; i < 2; ++i) {
    const auto model = small_model();
    Trainer trainer(
        model, data,
        {.precision = "bf16", .masters = i ? MasterWeights::split : MasterWeights::fp32, .batch = 16});
    run_to(trainer, 7);
    losses[i] = trainer.step().loss;
    after[i] = weights(*model);
  }
  EXPECT_NEAR(losses[0], losses[1], 0.02 * losses[0]);
  EXPECT_TRUE(torch::allclose(after[0], after[1], 0.05, 5e-3));
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
    EXPECT_SAYS(ulp::test::error_of([&] { Trainer(small_model(), data, options); }), text);
  };
  EXPECT_ERROR((void)TrainOptions{.precision = "fp12"}, "bf16");
  says({.epochs = 0}, "epochs in [1, 2147483647]");
  says({.epochs = int64_t{1} << 62}, "epochs in [1, 2147483647]");
  says({.batch = 0}, "batch in [1, 2147483647]");
  says({.batch = 65}, "at most 64");
  says({.batch = 16, .accumulate = 0}, "accumulate in [1, 2147483647]");
  says({.epochs = 1, .batch = 16, .accumulate = 5}, "at most the 4 batches");
  says({.batch = 16, .learning_rate = INFINITY}, "learning_rate in (0, 3.40282e+38], got inf");
  says({.batch = 16, .learning_rate = -1}, "learning_rate in (0, 3.40282e+38]");
  says({.batch = 16, .momentum = 1}, "momentum");
  says({.batch = 16, .weight_decay = -1}, "weight_decay in [0, 3.40282e+38]");
  says({.batch = 16, .warmup = 1}, "warmup");
  says({.batch = 16, .max_steps = -1}, "max_steps");
  says({.precision = "fp16", .scaler = ScalerSpec::fixed(-1)}, "scale");
  says({.precision = "fp16", .scaler = ScalerSpec::fixed(8), .init_scale = 4}, "init_scale");
  says({.init_scale = -1}, "init_scale in (0, 3.40282e+38]");
  says({.growth_interval = 0}, "growth_interval in [1, 2147483647]");
  says({.batch = 16, .clip = -1}, "clip in (0, 3.40282e+38]");
  says({.batch = 16, .clip = std::nan("")}, "clip in (0, 3.40282e+38]");
}

TEST(Trainer, OptionsThatDoNotGoTogetherNameBoth) {
  const auto data = bars();
  const auto says = [&](const TrainOptions& options, const std::string& first, const std::string& second) {
    const auto conflict = options.conflict();
    ASSERT_TRUE(conflict.has_value()) << first;
    EXPECT_SAYS(conflict->sentence, first);
    EXPECT_SAYS(conflict->sentence, second);
    EXPECT_SAYS(ulp::test::error_of([&] { Trainer(small_model(), data, options); }), conflict->text());
  };
  using enum MasterWeights;
  says({.precision = "fp32", .masters = split}, "{masters=split}", "{precision=fp32}");
  says({.precision = "O3:bf16", .moments = MomentFormat::int8}, "{moments=int8}", "{masters}");
  says({.fp32_moments = "*"}, "{fp32_moments}", "{moments=bf16}");
  says({.precision = "fp16", .masters = split}, "{masters=split}", "{precision=fp16}");
  says({.precision = "O2", .masters = kahan}, "{masters=kahan}", "{precision=O2}");
  says({.precision = "bf16", .init_scale = 2}, "{init_scale}", "{scaler=none}");
  says({.precision = "fp32", .scaler = ScalerKind::pytorch}, "{scaler=pytorch}", "{precision=fp32}");
  says({.precision = "bf16", .scaler = ScalerSpec::fixed(8)}, "{scaler=static:8}", "{precision=bf16}");
  says({.precision = "O3", .scaler = ScalerKind::apex}, "{scaler=apex}", "{precision=O3}");
  says({.precision = "O3", .clip = 1.0}, "{clip}", "{precision=O3}");
  says({.precision = "fp16", .compile = true}, "{compile}", "{precision=fp16}");
  says({.precision = "int8", .compile = true}, "{compile}", "{precision=int8}");
  EXPECT_EQ(TrainOptions({.masters = split}).conflict()->text(),
            "masters 'split' is for bf16 and fp16 parameters, and precision 'fp32' has fp32 parameters");
  EXPECT_FALSE(TrainOptions({.precision = "fp16", .masters = MasterWeights::fp32}).conflict());
  EXPECT_FALSE(TrainOptions({.precision = "O3:bf16", .masters = kahan, .clip = 1.0}).conflict());
  EXPECT_FALSE(TrainOptions({.precision = "bf16", .scaler = ScalerKind::none}).conflict());
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRun) {
  const auto data = bars();
  const auto model = small_model();
  Trainer trainer(model, data, {.batch = 16, .learning_rate = 1e30, .warmup = 0});
  EXPECT_SAYS(ulp::test::error_of([&] { run_to(trainer, 8); }), "expected a finite loss");
  const auto before = model->parameters()[0].detach().clone();
  EXPECT_SAYS(ulp::test::error_of([&] { trainer.step(); }), "expected a finite loss");
  EXPECT_TRUE(torch::equal(model->parameters()[0], before)) << "a step that failed changes nothing";
}

TEST(Trainer, LossScalingSkipsLossesThatAreNotFinite) {
  const auto data = bars();
  const auto model = small_model();
  auto task = ulp::train::image_task(model, ulp::train::image_stream(data, {.batch = 16}));
  int64_t runs = 0;
  const auto overflows = [](int64_t run) { return run == 2 || run == 3 || run == 6; };
  task.forward = [&, forward = task.forward](const ulp::train::TaskBatch& batch) {
    const at::Tensor logits = forward(batch);
    return overflows(runs++) ? logits * INFINITY : logits;
  };
  Trainer trainer(std::move(task),
                  {.precision = "fp16", .batch = 16, .warmup = 0, .max_steps = 20, .max_skips = 3});
  double scale = 65536;
  for (int64_t step = 0; step < 8; ++step) {
    const auto before = model->parameters()[0].detach().clone();
    const auto info = trainer.step();
    EXPECT_EQ(info.scale, scale) << step;
    EXPECT_EQ(std::isfinite(info.loss), !overflows(step)) << step;
    EXPECT_EQ(ulp::amp::is_skipped(info.result), overflows(step)) << step;
    EXPECT_EQ(torch::equal(model->parameters()[0], before), overflows(step)) << step;
    if (overflows(step)) scale /= 2;
  }
}

TEST(Trainer, ManyLossesInARowThatAreNotFiniteEndARunWithLossScaling) {
  const auto data = bars();
  const auto model = small_model();
  for (const int64_t most : {1, 4}) {
    auto task = ulp::train::image_task(model, ulp::train::image_stream(data, {.batch = 16}));
    task.forward = [forward = task.forward](const ulp::train::TaskBatch& batch) {
      return forward(batch) * std::numeric_limits<float>::quiet_NaN();
    };
    Trainer trainer(std::move(task), {.precision = "fp16", .batch = 16, .max_skips = most});
    const auto before = model->parameters()[0].detach().clone();
    for (int64_t step = 0; step + 1 < most; ++step) EXPECT_TRUE(ulp::amp::is_skipped(trainer.step().result));
    EXPECT_SAYS(
        ulp::test::error_of([&] { trainer.step(); }),
        "at step " + std::to_string(most - 1) + ", the last of " + std::to_string(most) + " in a row");
    EXPECT_TRUE(torch::equal(model->parameters()[0], before));
  }
}

/// A task whose loss is NaN in such of its batches, with finite gradients: all their targets are ignored.
Task with_ignored_targets(const std::shared_ptr<ulp::models::ImageModel>& model,
                          const ulp::io::ImageDataset& data, std::function<bool(int64_t batch)> ignored) {
  Task task = ulp::train::image_task(model, ulp::train::image_stream(data, {.batch = 16}));
  task.loss = [ignored, batches = std::make_shared<int64_t>(0)](const at::Tensor& logits,
                                                                const TaskBatch& batch) {
    TaskBatch seen = batch;
    if (ignored((*batches)++)) seen.targets = torch::full_like(batch.targets, -100);
    return ulp::train::cross_entropy(logits, seen);
  };
  return task;
}

/// Weights and the optimizer's state of a run, and its numbers in words (step counts, rates of the schedule).
ulp::io::TensorFile kept_by(const Trainer& trainer) {
  const ulp::test::TemporaryFolder folder;
  trainer.save(folder / "run.ckpt");
  ulp::io::TensorFile file = ulp::io::load_tensors(folder / "run.ckpt");
  std::erase_if(file.tensors, [](const auto& one) {
    return !one.first.starts_with("model.") && !one.first.starts_with("optimizer.");
  });
  return file;
}

/// Looks whether all gradients are finite.
struct GradientsAreFinite : ulp::train::StepObserver {
  bool finite = true;
  void gradients(const torch::nn::Module& model, double) override {
    finite = true;
    for (const at::Tensor& parameter : model.parameters())
      finite = finite && torch::isfinite(parameter.grad()).all().item<bool>();
  }
};

TEST(Trainer, ALossThatIsNotFiniteSkipsTheStepWhereGradientsAreFinite) {
  const auto data = bars();
  const std::pair<const char*, TrainOptions> cases[] = {
      {"sgd", {.precision = "fp16"}},
      {"adam", {.precision = "fp16", .optimizer = Optimizer::adam}},
      {"adamw of half a batch", {.precision = "fp16", .optimizer = Optimizer::adamw, .accumulate = 2}},
      {"clip", {.precision = "fp16", .clip = 0.1}},
      {"masters", {.precision = "O2", .optimizer = Optimizer::adamw}},
      {"moments", {.precision = "fp16", .moments = MomentFormat::int8, .optimizer = Optimizer::adam}},
      {"keras2 at 0.5", {.precision = "fp16", .scaler = ScalerKind::keras2, .init_scale = 0.5}},
      {"static", {.precision = "fp16", .scaler = ScalerSpec::fixed(8)}}};
  for (const auto& [name, given] : cases) {
    SCOPED_TRACE(name);
    TrainOptions options = given;
    options.batch = 16;
    options.max_steps = 12;
    const int64_t each = options.accumulate;
    Trainer trainer(with_ignored_targets(small_model(), data,
                                         [=](int64_t i) { return i / each % 3 == 1 && i % each == 0; }),
                    options);
    GradientsAreFinite gradients;
    trainer.observe(&gradients);
    auto before = kept_by(trainer);
    for (int64_t step = 0; step < 4; ++step) {
      const StepInfo info = trainer.step();
      ASSERT_TRUE(gradients.finite) << step;
      const bool skipped = step % 3 == 1;
      EXPECT_EQ(std::isnan(info.loss), skipped) << step;
      EXPECT_EQ(info.result, skipped ? StepResult::skipped_nonfinite : StepResult::stepped) << step;
      auto after = kept_by(trainer);
      bool same = before.tensors.size() == after.tensors.size();
      for (size_t i = 0; same && i < before.tensors.size(); ++i)
        same = before.tensors[i].second.equal(after.tensors[i].second);
      EXPECT_EQ(same, skipped) << step;
      EXPECT_EQ(before.metadata.at("ulp.optimizer") == after.metadata.at("ulp.optimizer"), skipped) << step;
      before = std::move(after);
    }
  }
}

TEST(Trainer, ALossThatIsNotFiniteShrinksTheScaleWhereGradientsAreFinite) {
  const auto data = bars();
  for (const auto& [scaler, factor] :
       {std::pair("pytorch", 0.5), {"keras", 0.5}, {"apex", 0.5}, {"static:8", 1.0}}) {
    Trainer trainer(with_ignored_targets(small_model(), data, [](int64_t i) { return i == 1; }),
                    {.precision = "fp16", .scaler = ScalerSpec::from_text(scaler), .batch = 16});
    trainer.step();
    const StepInfo skipped = trainer.step(), next = trainer.step();
    EXPECT_EQ(next.scale, factor * skipped.scale) << scaler;
    EXPECT_EQ(next.learning_rate, skipped.learning_rate) << scaler;
    EXPECT_EQ(next.result, StepResult::stepped) << scaler;
  }
}

TEST(Trainer, AResumedRunCountsSkippedStepsAnew) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  Trainer trainer(with_ignored_targets(small_model(), data, [](int64_t) { return true; }),
                  {.precision = "fp16", .batch = 16, .max_skips = 3});
  trainer.save(folder / "run.ckpt");
  for (int again = 0; again < 2; ++again) {
    for (int step = 0; step < 2; ++step) EXPECT_TRUE(ulp::amp::is_skipped(trainer.step().result));
    trainer.resume(folder / "run.ckpt");
  }
  run_to(trainer, 2);
  EXPECT_SAYS(ulp::test::error_of([&] { trainer.step(); }), "at step 2, the last of 3 in a row");
}

/// A machine of two processors, all of which others take.
ulp::amp::AdaptiveThreadsOptions busy_machine() {
  return {.most = 2, .window_seconds = 0, .probe = [usage = ulp::CpuUsage{.processors = 2}]() mutable {
            usage.wall += 1;
            usage.all += 2;
            return usage;
          }};
}

TEST(Trainer, TakesFewerThreadsBesideOtherPrograms) {
  const auto data = bars();
  Trainer trainer(small_model("mlp"), data, plain());
  const ulp::amp::AdaptiveThreads threads(busy_machine());
  EXPECT_EQ(at::get_num_threads(), 2);
  trainer.step();
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST(Evaluate, TakesFewerThreadsBesideOtherPrograms) {
  const auto data = bars();
  const auto model = small_model("mlp");
  const ulp::amp::AdaptiveThreads threads(busy_machine());
  evaluate([&](const at::Tensor& images) { return model->forward(images); }, data, 16);
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
