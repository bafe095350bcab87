#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/app/demo/demo_parts.h"
#include "ulp/base/interrupt.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/models/registry.h"
#include "ulp/report/progress.h"

namespace ulp::app {

namespace {

constexpr int64_t kHalfBatch = 32;  // fp16 arithmetic is emulated on most processors

struct Training {
  TrainingRun run;
  std::unique_ptr<train::Trainer> trainer;
};

int64_t parameter_bytes(const torch::nn::Module& model) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : model.parameters()) bytes += static_cast<int64_t>(tensor.nbytes());
  for (const at::Tensor& tensor : model.buffers()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

Training start(const DemoData& data, train::TrainOptions options) {
  torch::manual_seed(options.seed);
  Training training;
  training.run.precision = options.precision.name();
  training.run.model = models::make_model(
      data.spec.name, {data.spec.in_channels, data.spec.num_classes, data.spec.image_size});
  training.trainer = std::make_unique<train::Trainer>(training.run.model, data.train, options);
  return training;
}

/// Trains until the end of the epoch or of the run, whichever comes first. `threads` are LibTorch's while the
/// machine is quiet.
void run_epoch(Training& training, int threads) {
  TrainingRun& run = training.run;
  train::Trainer& trainer = *training.trainer;
  const int64_t first = trainer.next_step();
  const int64_t last =
      std::min(trainer.total_steps(), (first / trainer.steps_per_epoch() + 1) * trainer.steps_per_epoch());
  const measure::MemoryMeter meter;
  measure::QuietMeter quiet;
  quiet.begin();
  const auto begin = std::chrono::steady_clock::now();
  report::Progress progress("train " + run.precision, last - first, {.unit = "step"});
  const PollsInterrupts polls;
  while (trainer.next_step() < last) {
    check_interrupted();
    const train::StepInfo info = trainer.step();
    run.step.push_back(static_cast<double>(info.step));
    run.loss.push_back(info.loss);
    run.scale.push_back(info.scale);
    run.skipped_steps += amp::is_skipped(info.result);
    char note[32];
    std::snprintf(note, sizeof note, "loss %.3f", info.loss);
    progress.advance(1, note);
  }
  progress.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  quiet.end();
  const double whole = static_cast<double>(trainer.steps_per_epoch()) / static_cast<double>(last - first);
  const std::optional<measure::CoresUsed> cores = quiet.cores();
  run.epochs.push_back(
      {seconds * whole, quiet.others(), cores, measure::quiet_seconds(seconds * whole, cores, threads)});
  run.peak_bytes = std::max(run.peak_bytes, meter.peak_bytes() + parameter_bytes(*run.model));
}

}  // namespace

Epoch TrainingRun::epoch() const {
  std::vector<Epoch> counted;
  std::copy_if(epochs.begin(), epochs.end(), std::back_inserter(counted),
               [](const Epoch& each) { return !measure::is_disturbed(each.others); });
  if (counted.empty()) counted = epochs;
  std::sort(counted.begin(), counted.end(),
            [](const Epoch& a, const Epoch& b) { return a.seconds < b.seconds; });
  const size_t middle = counted.size() / 2;
  Epoch median = counted[middle];
  if (counted.size() % 2 == 0) median.seconds = (counted[middle - 1].seconds + median.seconds) / 2;
  for (const Epoch& each : counted) median.others = std::max(median.others, each.others);
  return median;
}

std::vector<TrainingRun> train_all(const DemoData& data, const DemoOptions& options) {
  std::optional<amp::AdaptiveThreads> threads;
  if (options.adapt_threads) threads.emplace();
  const int most = threads ? threads->most() : at::get_num_threads();
  train::TrainOptions train{
      .epochs = options.epochs, .max_steps = options.quick ? kQuickSteps : 0, .seed = options.seed};
  std::vector<Training> trainings;
  for (const char* precision : {"fp32", "bf16"}) {
    train.precision = precision;
    trainings.push_back(start(data, train));
  }
  while (!trainings.front().trainer->done()) {  // in turn, so that a drifting machine favours neither
    for (Training& training : trainings) run_epoch(training, most);
  }
  // fp16 starts at a scale that overflows and grows often, so that a short run shows the whole life of a loss
  // scale.
  train.precision = "fp16";
  train.max_steps = options.quick ? kQuickHalfSteps : kHalfSteps;
  train.batch = kHalfBatch;
  train.init_scale = 16777216;
  train.growth_interval = 10;
  trainings.push_back(start(data, train));
  run_epoch(trainings.back(), most);

  std::vector<TrainingRun> runs;
  for (Training& training : trainings) runs.push_back(std::move(training.run));
  return runs;
}

}  // namespace ulp::app
