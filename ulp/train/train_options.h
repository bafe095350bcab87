// How to train: what a run is told besides its task.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/optimizer/schedule_rule.h"
#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;
struct FieldConflict;
}  // namespace ulp

namespace ulp::train {

/// The update rule of a run.
enum class Optimizer { sgd, adam, adamw };

/// How a run trains.
struct ULP_API TrainOptions {
  amp::PrecisionName precision = {};            ///< fp32 by default
  std::optional<amp::ScalerSpec> scaler = {};   ///< nothing: pytorch where the precision needs one
  std::optional<double> init_scale = {};        ///< first loss scale; nothing: the scaler's own
  std::optional<int64_t> growth_interval = {};  ///< clean steps before the scale grows; nothing: the scaler's
  /// Parameters are stored in the precision's bf16 or fp16, and this is how their fp32 values are kept.
  /// Nothing: as the precision has it.
  std::optional<amp::MasterWeights> masters = {};
  /// How the optimizer keeps momentum and moments; others than fp32 not beside bare parameters of 16 bits.
  amp::MomentFormat moments = amp::MomentFormat::fp32;
  /// Parameters that keep fp32 ones, as patterns with commas between them: names or paths of modules, '*' being any
  /// run of characters.
  std::string fp32_moments = {};
  Optimizer optimizer = Optimizer::sgd;  ///< sgd is Nesterov's
  int64_t epochs = 4;
  int64_t batch = 128;     ///< samples that go through the model at once
  int64_t accumulate = 1;  ///< batches whose mean gradient makes one step
  /// The peak of the schedule; nothing: 0.2 for sgd, 0.001 for the others.
  std::optional<double> learning_rate = {};
  double momentum = 0.9;  ///< sgd
  /// L2 penalty (adamw: decoupled); nothing: 5e-4 for sgd, 0 for adam, 0.01 for adamw.
  std::optional<double> weight_decay = {};
  amp::Schedule schedule = amp::Schedule::triangle;
  double warmup = 0.25;  ///< share of the steps in which the rate rises
  /// Forward, backward and update are one list of kernel calls (train::compile), for networks that it takes,
  /// in fp32.
  bool compile = false;
  int64_t max_steps = 0;            ///< ends (and fits the schedule to) this many steps; 0: all epochs
  std::optional<double> clip = {};  ///< largest norm of all gradients together
  /// With loss scaling, a step whose loss is not finite is skipped and the scale shrinks, also where all
  /// gradients are finite, for which PyTorch's loop steps. After so many in a row the run ends: 30 halvings
  /// take PyTorch's first scale, 65,536, below fairseq's smallest one, 1e-4.
  int64_t max_skips = 30;
  uint64_t seed = 1;
  bool augment = true;  ///< images: random horizontal flips

  /// Every field with its limits, its help and its flag.
  void visit_fields(FieldVisitor& visitor);

  /// The rate, decay and scaler that are used.
  double peak_rate() const;
  double decay() const;
  amp::ScalerSpec used_scaler() const;
  /// How fp32 values of narrow parameters are kept, if they are.
  std::optional<amp::MasterWeights> master_weights() const;
  /// The precision that is used: with `masters`, parameters are in its 16-bit format.
  amp::Precision resolved_precision() const;

  /// Two options that do not go together; nothing where all is well.
  std::optional<FieldConflict> conflict() const;
  /// Throws ulp::Error naming the field, or for a conflict().
  void validate() const;
  /// All fields that a continued run must share, as JSON; those that are absent as the run uses them.
  std::string to_json() const;
};

}  // namespace ulp::train

template <>
struct ulp::EnumNames<ulp::train::Optimizer> {
  using enum train::Optimizer;
  static constexpr std::array<Word<train::Optimizer>, 3> list = {
      {{sgd, "sgd"}, {adam, "adam"}, {adamw, "adamw"}}};
};
