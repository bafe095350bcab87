#include "ulp/train/train_options.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ulp/amp/precision.h"
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

}  // namespace

double TrainOptions::peak_rate() const {
  return learning_rate ? *learning_rate : defaults_of(optimizer).learning_rate;
}

double TrainOptions::decay() const {
  return weight_decay ? *weight_decay : defaults_of(optimizer).weight_decay;
}

void TrainOptions::validate() const {
  const auto positive = [](const char* field, auto value) {
    if (!(value > 0)) fail(kWhere, "expected ", field, " > 0, got ", value);
  };
  amp::find_precision(precision);
  defaults_of(optimizer);
  positive("epochs", epochs);
  positive("batch", batch);
  positive("accumulate", accumulate);
  positive("learning_rate", peak_rate());
  positive("init_scale", init_scale);
  positive("growth_interval", growth_interval);
  if (clip) positive("clip", *clip);
  if (!(momentum >= 0 && momentum < 1)) fail(kWhere, "expected momentum in [0, 1), got ", momentum);
  if (!(decay() >= 0)) fail(kWhere, "expected weight_decay >= 0, got ", decay());
  if (!(warmup >= 0 && warmup < 1)) fail(kWhere, "expected warmup in [0, 1), got ", warmup);
  if (max_steps < 0) fail(kWhere, "expected max_steps >= 0, got ", max_steps);
}

std::string TrainOptions::to_json() const {
  return nlohmann::json{{"precision", precision},
                        {"optimizer", optimizer},
                        {"epochs", epochs},
                        {"batch", batch},
                        {"accumulate", accumulate},
                        {"learning_rate", peak_rate()},
                        {"momentum", momentum},
                        {"weight_decay", decay()},
                        {"warmup", warmup},
                        {"max_steps", max_steps},
                        {"clip", clip ? nlohmann::json(*clip) : nlohmann::json()},
                        {"seed", seed},
                        {"augment", augment},
                        {"init_scale", init_scale},
                        {"growth_interval", growth_interval}}
      .dump();
}

}  // namespace ulp::train
