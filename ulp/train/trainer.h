// The training loop of the tool: one image classifier, SGD with a one-cycle rate, any of the precisions,
// checkpoints that continue bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/grad_scaler.h"
#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/models/image_model.h"

namespace ulp::train {

struct ULP_API TrainOptions {
  std::string precision = "fp32";  ///< fp32, bf16 (autocast) or fp16 (autocast and loss scaling)
  int64_t epochs = 4;
  int64_t batch = 128;
  double learning_rate = 0.2;  ///< the peak of the one-cycle schedule
  double momentum = 0.9;       ///< Nesterov
  double weight_decay = 5e-4;
  double warmup = 0.25;   ///< share of the steps in which the rate rises
  int64_t max_steps = 0;  ///< ends (and fits the schedule to) this many steps; 0: all epochs
  uint64_t seed = 1;
  bool augment = true;        ///< random horizontal flips
  double init_scale = 65536;  ///< fp16: first loss scale
  int64_t growth_interval = 2000;

  /// Throws ulp::Error naming the field.
  void validate() const;
  /// All fields that a continued run must share, as JSON.
  std::string to_json() const;
};

/// What one step did.
struct StepInfo {
  int64_t step = 0;  ///< from 0
  int64_t epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double scale = 1;  ///< loss scale used in this step
  amp::StepResult result = amp::StepResult::stepped;
};

/// One training run that can be stopped and continued at any step.
class ULP_API Trainer {
 public:
  /// The data must outlive the trainer. The model is put into train mode, channels_last.
  Trainer(std::shared_ptr<models::ImageModel> model, const io::ImageDataset& data,
          const TrainOptions& options);
  ~Trainer();

  int64_t total_steps() const;
  int64_t steps_per_epoch() const;
  int64_t next_step() const;
  bool done() const { return next_step() >= total_steps(); }
  /// One batch: forward, backward, optimizer. Throws ulp::Error when the loss is not finite and no loss
  /// scaling could be the reason.
  StepInfo step();

  /// Everything that the next step depends on, in one file, atomically.
  void save(const std::filesystem::path& path) const;
  /// Continues where save() left off: the following steps give the same bits. Throws FileError for a damaged
  /// file, and ulp::Error when the file was written with other options.
  void resume(const std::filesystem::path& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::train
