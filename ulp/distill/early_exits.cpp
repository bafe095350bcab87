#include "ulp/distill/early_exits.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "ulp/base/error.h"
#include "ulp/distill/loss.h"
#include "ulp/distill/losses/registry.h"
#include "ulp/distill/weight_schedule.h"
#include "ulp/libtorch/keeps_float.h"

namespace ulp::distill {

namespace {

constexpr const char* kSelfLearnerWhere = "distill.SelfDistillation";

/// (N, features): the mean over what is no batch and no feature.
at::Tensor pooled(const at::Tensor& value) {
  const at::Tensor wide = value.to(torch::kFloat);
  if (wide.dim() == 4) return wide.mean({2, 3});
  if (wide.dim() == 3) return wide.mean(1);
  if (wide.dim() != 2) fail(kSelfLearnerWhere, "expected features of 2 to 4 dimensions, got ", value.sizes());
  return wide;
}

/// In fp32, as what it reads, also where the network is in 16 bits.
class FloatLinear final : public torch::nn::LinearImpl, public libtorch::KeepsFloat {
 public:
  using LinearImpl::LinearImpl;
};

torch::nn::Linear float_linear(int64_t from, int64_t to) {
  return torch::nn::Linear(std::shared_ptr<torch::nn::LinearImpl>(std::make_shared<FloatLinear>(from, to)));
}

struct Exit {
  std::string place;
  torch::nn::Linear classifier{nullptr}, features{nullptr};
};

}  // namespace

struct SelfDistillation::State {
  ExitOptions options;
  TappedModel network;
  std::shared_ptr<Loss> divergence;
  std::vector<Exit> exits;
  at::Tensor output;
  std::vector<at::Tensor> taps;  // of the exits, then the features
  std::vector<TermValue> values;

  static std::vector<std::string> places(const ExitOptions& options) {
    std::vector<std::string> all = options.places;
    if (!options.features.empty()) all.push_back(options.features);
    return all;
  }
  State(const graph::GraphModule& model, ExitOptions given)
      : options(std::move(given)),
        network(model, places(options)),
        divergence(make_loss("kd", {"T=" + WeightSchedule::constant(options.temperature).text()})) {}
};

SelfDistillation::SelfDistillation(std::shared_ptr<graph::GraphModule> network, ExitOptions options,
                                   const Batch& example) {
  if (network == nullptr) fail(kSelfLearnerWhere, "expected a network, got null");
  if (options.places.empty()) fail(kSelfLearnerWhere, "expected places of exits, got none");
  if (!(options.divergence >= 0 && options.divergence <= 1) || !(options.feature_weight >= 0) ||
      !(options.temperature > 0))
    fail(kSelfLearnerWhere,
         "expected a divergence in [0, 1], a weight of features >= 0 and a temperature > 0");
  state_ = std::make_unique<State>(*network, std::move(options));
  State& s = *state_;
  register_module("network", s.network.module());
  const bool training = s.network.module()->is_training();
  s.network.module()->eval();
  const auto values = [&] {
    const at::NoGradGuard no_grad;
    return s.network.run(example.inputs);
  }();
  s.network.module()->train(training);
  const int64_t classes = values.output().size(-1);
  if (values.output().dim() != 2)
    fail(kSelfLearnerWhere, "expected logits (N, classes), got ", values.output().sizes());
  for (size_t i = 0; i < s.options.places.size(); ++i) {
    const int64_t width = pooled(values.taps[i]).size(1);
    Exit exit{.place = s.options.places[i], .classifier = float_linear(width, classes)};
    register_module("exit_" + std::to_string(i), exit.classifier);
    if (!s.options.features.empty()) {
      exit.features = float_linear(width, pooled(values.taps.back()).size(1));
      register_module("features_" + std::to_string(i), exit.features);
    }
    s.exits.push_back(std::move(exit));
  }
}

SelfDistillation::~SelfDistillation() = default;

at::Tensor SelfDistillation::forward(const Batch& batch) {
  TappedModel::Values values = state_->network.run(batch.inputs);
  state_->taps = std::move(values.taps);
  state_->output = values.output();
  return state_->output;
}

at::Tensor SelfDistillation::loss(const Batch& batch) {
  State& s = *state_;
  const at::Tensor output = std::exchange(s.output, {});
  const std::vector<at::Tensor> taps = std::exchange(s.taps, {});
  if (!output.defined()) fail(kSelfLearnerWhere, "expected forward() before loss(), got none");
  s.values.clear();
  at::Tensor sum;
  const auto add = [&](const std::string& name, const at::Tensor& value, double weight) {
    s.values.push_back({name, value.item<double>(), weight});
    sum = sum.defined() ? sum + value * weight : value * weight;
  };
  add("labels", labelled_cross_entropy(output, batch.targets), 1);
  for (size_t i = 0; i < s.exits.size(); ++i) {
    Exit& exit = s.exits[i];
    const at::Tensor x = pooled(taps[i]);
    const at::Tensor logits = exit.classifier(x);
    add(exit.place + ", labels", labelled_cross_entropy(logits, batch.targets), 1 - s.options.divergence);
    add(exit.place + ", last layer",
        s.divergence->forward({.student = {logits}, .teacher = {output.detach()}}), s.options.divergence);
    if (!exit.features.is_empty())
      add(exit.place + ", features", at::mse_loss(exit.features(x), pooled(taps.back()).detach()),
          s.options.feature_weight);
  }
  return sum;
}

std::vector<TermValue> SelfDistillation::values() const {
  return state_->values;
}

std::vector<at::Tensor> SelfDistillation::all_logits(const Batch& batch) {
  const TappedModel::Values values = state_->network.run(batch.inputs);
  std::vector<at::Tensor> logits;
  for (size_t i = 0; i < state_->exits.size(); ++i)
    logits.push_back(state_->exits[i].classifier(pooled(values.taps[i])));
  logits.push_back(values.output());
  return logits;
}

}  // namespace ulp::distill
