// Runs of the training loop of `ulp train` that are watched for their memory.
#pragma once

#include <cstdint>
#include <functional>

#include "ulp/base/export.h"
#include "ulp/memory/predict/predictor.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp::app {

/// Makes a network and its data as a run of this size has them; its options have that batch.
using MakeTask = std::function<train::Task(memory::RunSize size)>;

/// Training, and what the program does behind it while the trainer lives.
struct TrainingProgram {
  MakeTask make = {};
  std::function<void(const train::Task& task, memory::RunSize size)> after = {};  ///< may be empty
};

/// Two steps of that training, recorded from making the network on: memory::Probe. More than two accumulated
/// batches need what two need, so that no more are run. Steps are small and none is skipped. Throws as
/// train::Trainer does.
ULP_API memory::Recording record_training(const TrainingProgram& program, const train::TrainOptions& options,
                                          memory::RunSize size);

/// The peak of the same training as measure::MemoryMeter sees it, with all the batches that are accumulated.
ULP_API int64_t measure_training(const TrainingProgram& program, const train::TrainOptions& options,
                                 memory::RunSize size, int64_t steps = 2);

}  // namespace ulp::app
