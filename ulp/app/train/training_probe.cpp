#include "ulp/app/train/training_probe.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "ulp/measure/memory_meter.h"
#include "ulp/memory/predict/recorder.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

namespace {

using memory::MemoryRecorder;
using memory::Phase;

constexpr int64_t kSteps = 2;

/// Whether the trainer makes another model of the task's, whose forward nobody here sees.
bool is_rewritten(const train::Task& task, const train::TrainOptions& options) {
  return task.activations || options.precision->fp8 || options.precision->int8;
}

/// Says when a batch is brought, and where the forward of the task says nothing, that one follows.
class RecordedStream final : public train::BatchStream {
 public:
  RecordedStream(std::unique_ptr<train::BatchStream> stream, MemoryRecorder& recorder, bool says_forward)
      : stream_(std::move(stream)), recorder_(recorder), says_forward_(says_forward) {}
  std::optional<train::TaskBatch> next() override {
    recorder_.enter(Phase::data);
    auto batch = stream_->next();
    if (says_forward_) recorder_.enter(Phase::forward);
    return batch;
  }
  int64_t samples() const override { return stream_->samples(); }
  int64_t batches() const override { return stream_->batches(); }
  int64_t epoch() const override { return stream_->epoch(); }
  std::string state() const override { return stream_->state(); }
  void restore(const std::string& state) override { stream_->restore(state); }

 private:
  std::unique_ptr<train::BatchStream> stream_;
  MemoryRecorder& recorder_;
  bool says_forward_;
};

/// Says when the optimizer begins.
class RecordedSteps final : public train::StepObserver {
 public:
  explicit RecordedSteps(MemoryRecorder& recorder) : recorder_(recorder) {}
  void gradients(const torch::nn::Module&, double) override { recorder_.enter(Phase::step); }

 private:
  MemoryRecorder& recorder_;
};

train::Task recorded(train::Task task, MemoryRecorder& recorder, bool rewritten) {
  task.batches = std::make_unique<RecordedStream>(std::move(task.batches), recorder, rewritten);
  task.forward = [forward = std::move(task.forward), &recorder](const train::TaskBatch& batch) {
    recorder.enter(Phase::forward);
    return forward(batch);
  };
  task.loss = [loss = std::move(task.loss), &recorder](const at::Tensor& output,
                                                       const train::TaskBatch& batch) {
    at::Tensor result = loss(output, batch);
    recorder.enter(Phase::backward);
    return result;
  };
  return task;
}

/// The same program in steps that change little, and that no loss scale skips.
train::TrainOptions sized(train::TrainOptions options, memory::RunSize size, int64_t steps) {
  options.batch = size.batch;
  options.max_steps = steps;
  options.learning_rate = 1e-6;
  if (options.used_scaler().kind == amp::ScalerKind::none) return options;
  options.scaler = amp::ScalerKind::pytorch;
  options.init_scale = 1;
  options.growth_interval = std::nullopt;
  return options;
}

/// What a task must still be known for when the trainer has it.
train::Task without_batches(const train::Task& task) {
  return {.model = task.model, .forward = task.forward, .batches = nullptr, .loss = task.loss};
}

}  // namespace

memory::Recording record_training(const TrainingProgram& program, const train::TrainOptions& options,
                                  memory::RunSize size) {
  train::TrainOptions used = sized(options, size, kSteps);
  used.accumulate = std::min<int64_t>(options.accumulate, 2);
  MemoryRecorder recorder;
  train::Task task = program.make(size);
  const train::Task known = without_batches(task);
  recorder.watch(*task.model);
  const bool rewritten = is_rewritten(task, used);
  train::Trainer trainer(recorded(std::move(task), recorder, rewritten), used);
  RecordedSteps steps(recorder);
  trainer.observe(&steps);
  while (!trainer.done()) trainer.step();
  recorder.enter(Phase::after);
  if (program.after) program.after(known, size);
  return recorder.finish();
}

int64_t measure_training(const TrainingProgram& program, const train::TrainOptions& options,
                         memory::RunSize size, int64_t steps) {
  const measure::MemoryMeter meter;
  train::Task task = program.make(size);
  const train::Task known = without_batches(task);
  train::Trainer trainer(std::move(task), sized(options, size, steps));
  while (!trainer.done()) trainer.step();
  if (program.after) program.after(known, size);
  return meter.peak_bytes();
}

}  // namespace ulp::app
