#include "ulp/train/train_options.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/fields_json.h"

namespace ulp::train {

namespace {

constexpr const char* kTrainOptionsWhere = "train.TrainOptions";

/// Of the numbers that the steps compute with in fp32.
constexpr double kLargestFloat = std::numeric_limits<float>::max();
/// Products of two counts fit 63 bits.
constexpr double kLargestCount = std::numeric_limits<int32_t>::max();

struct OptimizerDefaults {
  double learning_rate, weight_decay;
};

OptimizerDefaults defaults_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::adam:
      return {.learning_rate = 0.001, .weight_decay = 0};
    case Optimizer::adamw:
      return {.learning_rate = 0.001, .weight_decay = 0.01};
    case Optimizer::sgd:
      break;
  }
  return {.learning_rate = 0.2, .weight_decay = 5e-4};
}

/// A field with its value, for FieldConflict.
std::string told(const char* field, const std::string& value) {
  return std::string("{") + field + '=' + value + '}';
}

}  // namespace

void TrainOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "precision", .help = "How to compute"}, precision);
  visitor({.name = "scaler", .help = "Loss scaling", .unset = "pytorch where the precision needs one"},
          scaler);
  visitor({.name = "init_scale",
           .help = "First loss scale",
           .min = 0,
           .max = kLargestFloat,
           .above_min = true,
           .absent = "null",
           .unset = "the scaler's"},
          init_scale);
  visitor({.name = "growth_interval",
           .help = "Clean steps before the scale grows",
           .min = 1,
           .max = kLargestCount,
           .absent = "null",
           .unset = "the scaler's"},
          growth_interval);
  visitor({.name = "masters",
           .help = "Store parameters in bf16 or fp16 and keep their fp32 values",
           .absent = "none"},
          masters);
  visitor({.name = "moments",
           .help = "Keep the optimizer's momentum and moments in fp32, in bf16 (half the memory, rounded at "
                   "random), or in blocks of int8 (a quarter) or int4 (an eighth)"},
          moments);
  visitor(
      {.name = "fp32_moments",
       .help = "With {moments}: parameters that keep fp32 ones, by name or path of a module, separated by "
               "commas; '*' matches any run of characters (embeddings: '*emb*,*wte*,*wpe*')",
       .keep_empty = false,
       .unset = "none"},
      fp32_moments);
  visitor({.name = "optimizer", .help = "sgd (Nesterov), adam or adamw"}, optimizer);
  visitor({.name = "epochs", .help = "Passes over the training data", .min = 1, .max = kLargestCount},
          epochs);
  visitor({.name = "batch",
           .help = "Samples that go through the network at once",
           .min = 1,
           .max = kLargestCount},
          batch);
  visitor({.name = "accumulate",
           .help = "Batches whose mean gradient makes one step",
           .min = 1,
           .max = kLargestCount},
          accumulate);
  visitor({.name = "clip",
           .help = "Largest norm of all gradients together",
           .min = 0,
           .max = kLargestFloat,
           .above_min = true,
           .absent = "null"},
          clip);
  visitor(
      {.name = "max_skips",
       .help = "Loss scaling: steps in a row that are skipped for a loss that is not finite before the run "
               "ends",
       .min = 1,
       .max = kLargestCount},
      max_skips);
  visitor({.name = "learning_rate",
           .help = "Peak of the learning rate",
           .min = 0,
           .max = kLargestFloat,
           .above_min = true,
           .unset = "0.2 for sgd, 0.001 for the others",
           .flag = "lr"},
          learning_rate);
  visitor({.name = "momentum", .help = "Nesterov momentum", .min = 0, .max = 1, .below_max = true}, momentum);
  visitor({.name = "weight_decay",
           .help = "L2 penalty",
           .min = 0,
           .max = kLargestFloat,
           .unset = "5e-4 for sgd, 0 for adam, 0.01 for adamw"},
          weight_decay);
  visitor({.name = "schedule", .help = "Curve of the learning rate"}, schedule);
  visitor({.name = "warmup",
           .help = "Share of the steps in which the rate rises",
           .min = 0,
           .max = 1,
           .below_max = true},
          warmup);
  visitor(
      {.name = "compile",
       .help = "Compile the step: forward, backward and update as one list of kernel calls, in fp32 or with "
               "products in bf16, for networks of ops that it knows"},
      compile);
  visitor({.name = "max_steps", .help = "End after this many steps (0: all epochs)", .min = 0, .max = 1e15},
          max_steps);
  visitor({.name = "seed", .help = "Seed of weights, order and augmentation"}, seed);
  visitor({.name = "augment", .help = "Images: random horizontal flips"}, augment);
}

double TrainOptions::peak_rate() const {
  return learning_rate.value_or(defaults_of(optimizer).learning_rate);
}

double TrainOptions::decay() const {
  return weight_decay.value_or(defaults_of(optimizer).weight_decay);
}

amp::ScalerSpec TrainOptions::used_scaler() const {
  if (scaler) return *scaler;
  return precision->needs_scaler ? amp::ScalerKind::pytorch : amp::ScalerKind::none;
}

std::optional<amp::MasterWeights> TrainOptions::master_weights() const {
  if (!masters && precision->master_weights) return amp::MasterWeights::fp32;
  return masters;
}

amp::Precision TrainOptions::resolved_precision() const {
  amp::Precision resolved = *precision;
  if (masters && !resolved.parameter_dtype) {
    resolved.parameter_dtype = resolved.autocast_dtype;
    resolved.batch_norm_fp32 = true;
  }
  return resolved;
}

std::optional<FieldConflict> TrainOptions::conflict() const {
  const amp::Precision resolved = resolved_precision();
  const bool half = resolved.autocast_dtype == c10::kHalf || resolved.parameter_dtype == c10::kHalf;
  const bool bare = resolved.parameter_dtype && !master_weights();
  const amp::ScalerSpec scaling = used_scaler();
  const bool scaled = scaling.kind != amp::ScalerKind::none;
  const std::string its_precision = told("precision", precision.name());
  const std::string its_scaler = told("scaler", scaling.text());
  if (masters && !resolved.parameter_dtype) {
    return FieldConflict{told("masters", enum_name(*masters)) + " is for bf16 and fp16 parameters, and " +
                         its_precision + " has fp32 parameters"};
  }
  if (masters && half && *masters != amp::MasterWeights::fp32) {
    return FieldConflict{told("masters", enum_name(*masters)) + " is for bf16 parameters, and " +
                         its_precision + " has fp16 parameters"};
  }
  if (moments != amp::MomentFormat::fp32 && bare) {
    return FieldConflict{told("moments", enum_name(moments)) + " needs {masters} beside " + its_precision +
                         ": without them LibTorch makes the step and keeps its state in the type of the "
                         "parameters"};
  }
  if (moments == amp::MomentFormat::fp32 && !fp32_moments.empty())
    return FieldConflict{"{fp32_moments} is for {moments=bf16}, int8 or int4: all are fp32"};
  if (!scaled && (init_scale || growth_interval)) {
    return FieldConflict{"{init_scale} and {growth_interval} are for loss scaling, and a run with " +
                         its_precision + " and " + its_scaler + " has none"};
  }
  if (scaled && !half) {
    return FieldConflict{its_scaler + " is for fp16, and " + its_precision + " does not compute in it"};
  }
  if (scaled && bare) {
    return FieldConflict{its_scaler + " needs {masters=fp32} beside " + its_precision +
                         ": fp16 gradients of bare fp16 parameters have no room to be unscaled"};
  }
  const bool other_autocast = resolved.autocast_dtype && resolved.autocast_dtype != at::kBFloat16;
  if (compile && (other_autocast || resolved.parameter_dtype || resolved.fp8 || resolved.int8)) {
    return FieldConflict{"{compile} is for {precision=fp32} and {precision=bf16}, and " + its_precision +
                         " computes otherwise"};
  }
  if (bare && clip) {
    return FieldConflict{"{clip} needs {masters} beside " + its_precision + ", whose parameters are bare"};
  }
  return std::nullopt;
}

void TrainOptions::validate() const {
  check_limits(kTrainOptionsWhere, *this);
  amp::check_device(*precision, c10::kCPU);
  if (const auto found = conflict()) fail(ErrorCode::bad_option, kTrainOptionsWhere, found->text());
  amp::make_scaler(used_scaler(), {.init_scale = init_scale, .growth_interval = growth_interval});
  amp::make_schedule_rule(schedule, /*total_steps=*/2, /*warmup=*/0);
}

std::string TrainOptions::to_json() const {
  TrainOptions used = *this;
  used.scaler = used_scaler();
  used.masters = master_weights();
  used.learning_rate = peak_rate();
  used.weight_decay = decay();
  nlohmann::json json = fields_to_json(used);
  json.erase("max_skips");              // says when a run ends, and nothing of what a continued one computes
  if (!compile) json.erase("compile");  // as in files from before there was any
  return json.dump();
}

}  // namespace ulp::train
