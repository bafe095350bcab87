// How to train: what a run is told besides its task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/base/export.h"

namespace ulp::train {

/// How a run trains; the flags of `ulp train`.
struct ULP_API TrainOptions {
  std::string precision = "fp32";  ///< a name of amp::precisions()
  std::string scaler = {};  ///< a name of amp::make_scaler(); empty: pytorch where the precision needs one
  std::optional<double> init_scale = {};        ///< first loss scale; nothing: the scaler's own
  std::optional<int64_t> growth_interval = {};  ///< clean steps before the scale grows; nothing: the scaler's
  /// fp32, split, stochastic or kahan: parameters are stored in the precision's bf16 or fp16, and this is how
  /// their fp32 values are kept. Empty: as the precision has it.
  std::string masters = {};
  /// fp32 or bf16: how the optimizer keeps momentum and moments; bf16 with masters or `clip` only.
  std::string moments = "fp32";
  std::string optimizer = "sgd";  ///< sgd (Nesterov), adam or adamw
  int64_t epochs = 4;
  int64_t batch = 128;     ///< samples that go through the model at once
  int64_t accumulate = 1;  ///< batches whose mean gradient makes one step
  /// The peak of the schedule; nothing: 0.2 for sgd, 0.001 for the others.
  std::optional<double> learning_rate = {};
  double momentum = 0.9;  ///< sgd
  /// L2 penalty (adamw: decoupled); nothing: 5e-4 for sgd, 0 for adam, 0.01 for adamw.
  std::optional<double> weight_decay = {};
  std::string schedule = "triangle";  ///< a name of amp::make_schedule_rule()
  double warmup = 0.25;               ///< share of the steps in which the rate rises
  int64_t max_steps = 0;              ///< ends (and fits the schedule to) this many steps; 0: all epochs
  std::optional<double> clip = {};    ///< largest norm of all gradients together
  uint64_t seed = 1;
  bool augment = true;  ///< images: random horizontal flips

  /// The rate and decay that are used.
  double peak_rate() const;
  double decay() const;
  /// The scaler that is used: a name of amp::make_scaler().
  std::string scaler_name() const;
  /// How fp32 values of narrow parameters are kept, if they are.
  std::optional<amp::MasterWeights> master_weights() const;
  /// The precision that is used: with `masters`, parameters are in its 16-bit format.
  amp::Precision resolved_precision() const;

  /// Two options that do not go together, as one sentence that names both by their command-line flags;
  /// nothing where all is well. Throws ulp::Error for names that do not exist.
  std::optional<std::string> conflict() const;
  /// Throws ulp::Error naming the field, or for a conflict().
  void validate() const;
  /// All fields that a continued run must share, as JSON.
  std::string to_json() const;
};

}  // namespace ulp::train
