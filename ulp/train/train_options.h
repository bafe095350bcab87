// How to train: what a run is told besides its task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulp/base/export.h"

namespace ulp::train {

struct ULP_API TrainOptions {
  std::string precision = "fp32";  ///< a name of amp::precisions()
  std::string optimizer = "sgd";   ///< sgd (Nesterov), adam or adamw
  int64_t epochs = 4;
  int64_t batch = 128;     ///< samples that go through the model at once
  int64_t accumulate = 1;  ///< batches whose mean gradient makes one step
  /// The peak of the one-cycle schedule; nothing: 0.2 for sgd, 0.001 for the others.
  std::optional<double> learning_rate = {};
  double momentum = 0.9;  ///< sgd
  /// L2 penalty (adamw: decoupled); nothing: 5e-4 for sgd, 0 for adam, 0.01 for adamw.
  std::optional<double> weight_decay = {};
  double warmup = 0.25;             ///< share of the steps in which the rate rises
  int64_t max_steps = 0;            ///< ends (and fits the schedule to) this many steps; 0: all epochs
  std::optional<double> clip = {};  ///< largest norm of all gradients together
  uint64_t seed = 1;
  bool augment = true;        ///< images: random horizontal flips
  double init_scale = 65536;  ///< fp16: first loss scale
  int64_t growth_interval = 2000;

  /// The rate and decay that are used.
  double peak_rate() const;
  double decay() const;

  /// Throws ulp::Error naming the field.
  void validate() const;
  /// All fields that a continued run must share, as JSON.
  std::string to_json() const;
};

}  // namespace ulp::train
