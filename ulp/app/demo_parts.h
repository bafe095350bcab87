// The demo's parts and what they pass to each other. Internal to the room.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/app/demo.h"
#include "ulp/app/model_file.h"
#include "ulp/io/dataset.h"
#include "ulp/models/image_model.h"
#include "ulp/report/report.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// One precision's training.
struct TrainingRun {
  std::string precision;
  std::shared_ptr<models::ImageModel> model;
  std::vector<double> step, loss, scale;
  std::vector<double> epoch_seconds;  ///< scaled to a whole epoch where a run was shorter
  int64_t peak_bytes = 0;             ///< parameters, gradients, optimizer state and activations
  int64_t skipped_steps = 0;
  std::optional<train::Accuracy> accuracy;

  double seconds_per_epoch() const;  ///< the median
};

/// One row of the table.
struct Variant {
  std::string name;
  std::optional<train::Accuracy> accuracy;
  std::optional<double> seconds_per_epoch;
  int64_t memory_bytes = 0;
  std::optional<int64_t> file_bytes;
  double latency_seconds = 0;  ///< batch 1
  double throughput = 0;       ///< images per second at batch 64
};

struct DemoData {
  io::ImageDataset train, test;
  ModelSpec spec;
};

inline constexpr int64_t kThroughputBatch = 64;
inline constexpr int64_t kCalibrationImages = 1000;

/// Trains fp32 and bf16 from one seed, epochs in turn, then a short fp16 run with loss scaling.
std::vector<TrainingRun> train_all(const DemoData& data, const DemoOptions& options);

/// Quantizes and lowers the fp32 network, evaluates every variant over the test images and measures their
/// speed.
std::vector<Variant> run_variants(const DemoData& data, std::vector<TrainingRun>& runs,
                                  const DemoOptions& options);

report::Report make_report(const std::vector<TrainingRun>& runs, const std::vector<Variant>& variants,
                           const DemoOptions& options, double seconds);

}  // namespace ulp::app
