#include "ulp/train/train_options.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ulp/amp/optimizer/schedule_rule.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/base/error.h"

namespace ulp::train {

namespace {

constexpr const char* kWhere = "train.TrainOptions";

struct OptimizerDefaults {
  std::string_view name;
  double learning_rate, weight_decay;
};
constexpr std::array<OptimizerDefaults, 3> kOptimizers = {
    {{"sgd", 0.2, 5e-4}, {"adam", 0.001, 0.0}, {"adamw", 0.001, 0.01}}};

const OptimizerDefaults& defaults_of(const std::string& optimizer) {
  for (const OptimizerDefaults& defaults : kOptimizers) {
    if (defaults.name == optimizer) return defaults;
  }
  fail(kWhere, "expected optimizer sgd, adam or adamw, got '", optimizer, "'");
}

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

double TrainOptions::peak_rate() const {
  return learning_rate ? *learning_rate : defaults_of(optimizer).learning_rate;
}

double TrainOptions::decay() const {
  return weight_decay ? *weight_decay : defaults_of(optimizer).weight_decay;
}

std::string TrainOptions::scaler_name() const {
  if (!scaler.empty()) return scaler;
  return amp::find_precision(precision).needs_scaler ? "pytorch" : "none";
}

std::optional<amp::MasterWeights> TrainOptions::master_weights() const {
  if (!masters.empty()) return amp::find_masters(masters);
  if (amp::find_precision(precision).master_weights) return amp::MasterWeights::fp32;
  return std::nullopt;
}

amp::Precision TrainOptions::resolved_precision() const {
  amp::Precision resolved = amp::find_precision(precision);
  if (!masters.empty() && !resolved.parameter_dtype) {
    resolved.parameter_dtype = resolved.autocast_dtype;
    resolved.batch_norm_fp32 = true;
  }
  return resolved;
}

std::optional<std::string> TrainOptions::conflict() const {
  const amp::Precision resolved = resolved_precision();
  const bool half = resolved.autocast_dtype == c10::kHalf || resolved.parameter_dtype == c10::kHalf;
  const bool bare = resolved.parameter_dtype && !master_weights();
  const std::string in_precision = "--precision " + precision;
  if (!masters.empty() && !resolved.parameter_dtype) {
    return "--masters " + masters + " is for bf16 and fp16 parameters, which " + in_precision + " has not";
  }
  if (half && !masters.empty() && amp::find_masters(masters) != amp::MasterWeights::fp32) {
    return "--masters " + masters + " is for bf16 parameters, which " + in_precision + " has not";
  }
  if (amp::find_moments(moments) != amp::MomentFormat::fp32 && !master_weights() && !clip) {
    return "--moments " + moments +
           " needs --masters or --clip: without them the step is LibTorch's, whose state is as the "
           "parameters are";
  }
  if (scaler_name() == "none" && (init_scale || growth_interval))
    return "--init-scale and --growth-interval are for loss scaling, which " + in_precision + " has not here";
  if (!half && scaler_name() != "none") {
    return "--scaler " + scaler + " is for fp16, and " + in_precision + " does not compute in it";
  }
  if (bare && scaler_name() != "none") {
    return "--scaler " + scaler + " needs --masters fp32 beside " + in_precision +
           ": fp16 gradients of bare fp16 parameters have no room to be unscaled";
  }
  if (bare && clip) return "--clip needs --masters beside " + in_precision + ", whose parameters are bare";
  return std::nullopt;
}

void TrainOptions::validate() const {
  const auto positive = [](const char* field, auto value) {
    if (!(value > 0)) fail(kWhere, "expected ", field, " > 0, got ", value);
  };
  defaults_of(optimizer);
  positive("epochs", epochs);
  positive("batch", batch);
  positive("accumulate", accumulate);
  positive("learning_rate", peak_rate());
  if (init_scale) positive("init_scale", *init_scale);
  if (growth_interval) positive("growth_interval", *growth_interval);
  if (clip) positive("clip", *clip);
  if (!(momentum >= 0 && momentum < 1)) fail(kWhere, "expected momentum in [0, 1), got ", momentum);
  if (!(decay() >= 0)) fail(kWhere, "expected weight_decay >= 0, got ", decay());
  if (!(warmup >= 0 && warmup < 1)) fail(kWhere, "expected warmup in [0, 1), got ", warmup);
  if (max_steps < 0) fail(kWhere, "expected max_steps >= 0, got ", max_steps);
  amp::check_device(amp::find_precision(precision), c10::kCPU);
  if (const auto text = conflict()) fail(kWhere, *text);
  amp::make_scaler(scaler_name(), {.init_scale = init_scale, .growth_interval = growth_interval});
  amp::make_schedule_rule(schedule, /*total_steps=*/2, /*warmup=*/0);
}

std::string TrainOptions::to_json() const {
  const auto kept = master_weights();
  return nlohmann::json{{"precision", precision},
                        {"scaler", scaler_name()},
                        {"init_scale", or_null(init_scale)},
                        {"growth_interval", or_null(growth_interval)},
                        {"masters", kept ? amp::to_string(*kept) : "none"},
                        {"moments", moments},
                        {"optimizer", optimizer},
                        {"epochs", epochs},
                        {"batch", batch},
                        {"accumulate", accumulate},
                        {"learning_rate", peak_rate()},
                        {"momentum", momentum},
                        {"weight_decay", decay()},
                        {"schedule", schedule},
                        {"warmup", warmup},
                        {"max_steps", max_steps},
                        {"clip", or_null(clip)},
                        {"seed", seed},
                        {"augment", augment}}
      .dump();
}

}  // namespace ulp::train
