// The demo's parts and what they pass to each other. Internal to the room.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/app/demo/demo.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/io/dataset.h"
#include "ulp/measure/measure.h"
#include "ulp/models/image_model.h"
#include "ulp/report/report.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

inline constexpr int64_t kThroughputBatch = 64;
inline constexpr int64_t kCalibrationImages = 1000;
inline constexpr int64_t kQuickSteps = 140;
inline constexpr int64_t kHalfSteps = 40;  ///< of fp16, whose arithmetic most processors emulate
inline constexpr int64_t kQuickHalfSteps = 20;

/// How long each way of running the network is measured.
inline measure::MeasureOptions measure_budget(bool quick) {
  return {.rounds = quick ? 5 : 11, .round_seconds = quick ? 0.08 : 0.2};
}

struct Epoch {
  double seconds = 0;            ///< scaled to a whole epoch where a run was shorter
  std::optional<double> others;  ///< see measure::share_of_others()
  std::optional<measure::CoresUsed> cores = {};
  std::optional<double> quiet = {};  ///< see measure::quiet_seconds()
};

/// One precision's training.
struct ULP_API TrainingRun {
  std::string precision;
  std::shared_ptr<models::ImageModel> model;
  std::vector<double> step, loss, scale;
  std::vector<Epoch> epochs;
  int64_t peak_bytes = 0;  ///< parameters, gradients, optimizer state and activations
  int64_t skipped_steps = 0;
  std::optional<train::Accuracy> accuracy;

  /// The median of the epochs that nobody disturbed, or of all where there is none of these.
  Epoch epoch() const;
};

/// One row of the table.
struct ULP_API Variant {
  std::string name;
  std::optional<train::Accuracy> accuracy;
  std::optional<Epoch> epoch;
  int64_t memory_bytes = 0;
  std::optional<int64_t> file_bytes;
  measure::Timing single;   ///< seconds at batch 1
  measure::Timing batched;  ///< seconds at kThroughputBatch

  double throughput() const { return static_cast<double>(kThroughputBatch) / batched.median; }  ///< images/s
  /// The largest share that others took while one of the figures was measured; nothing where none is known.
  std::optional<double> others() const;
};

struct DemoData {
  io::ImageDataset train, test;
  ModelSpec spec;
};

/// Trains fp32 and bf16 from one seed, epochs in turn, then a short fp16 run with loss scaling.
std::vector<TrainingRun> train_all(const DemoData& data, const DemoOptions& options);

/// Quantizes and lowers the fp32 network, evaluates every variant over the test images and measures their
/// speed.
std::vector<Variant> run_variants(const DemoData& data, std::vector<TrainingRun>& runs,
                                  const DemoOptions& options);

ULP_API report::Report make_report(const std::vector<TrainingRun>& runs, const std::vector<Variant>& variants,
                                   const DemoOptions& options, double seconds);

}  // namespace ulp::app
