#include "ulp/distill/mutual.h"

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/distill/loss.h"
#include "ulp/distill/losses/registry.h"
#include "ulp/distill/weight_schedule.h"

namespace ulp::distill {

namespace {

constexpr const char* kMutualLearnerWhere = "distill.MutualDistillation";

}  // namespace

MutualDistillation::MutualDistillation(std::vector<std::shared_ptr<graph::GraphModule>> peers,
                                       MutualOptions options)
    : peers_(std::move(peers)), options_(options) {
  if (peers_.size() < 2) fail(kMutualLearnerWhere, "expected at least two peers, got ", peers_.size());
  if (!(options.weight > 0) || !(options.temperature > 0))
    fail(kMutualLearnerWhere, "expected a weight and a temperature > 0, got ", options.weight, " and ",
         options.temperature);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] == nullptr) fail(kMutualLearnerWhere, "expected peers, got null");
    if (std::ranges::count(peers_, peers_[i]) != 1)
      fail(kMutualLearnerWhere, "expected different peers, got one twice");
    register_module("peer_" + std::to_string(i), peers_[i]);
  }
  divergence_ = make_loss("kd", {"T=" + WeightSchedule::constant(options.temperature).text()});
}

at::Tensor MutualDistillation::forward(const Batch& batch) {
  logits_.clear();
  for (const auto& peer : peers_) {
    logits_.push_back(peer->forward(batch.inputs));
    if (logits_.back().sizes() != logits_[0].sizes())
      fail(kMutualLearnerWhere, "expected peers with logits of one shape, got ", logits_[0].sizes(), " and ",
           logits_.back().sizes());
  }
  return logits_[0];
}

at::Tensor MutualDistillation::loss(const Batch& batch) {
  const std::vector<at::Tensor> logits = std::exchange(logits_, {});
  if (logits.empty()) fail(kMutualLearnerWhere, "expected forward() before loss(), got none");
  values_.clear();
  at::Tensor sum;
  const auto add = [&](const std::string& name, const at::Tensor& value, double weight) {
    values_.push_back({name, value.item<double>(), weight});
    sum = sum.defined() ? sum + value * weight : value * weight;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const std::string peer = "peer " + std::to_string(i + 1);
    add(peer + ", labels", labelled_cross_entropy(logits[i], batch.targets), 1);
    at::Tensor divergence;
    for (size_t j = 0; j < logits.size(); ++j) {
      if (j == i) continue;
      const at::Tensor one = divergence_->forward({.student = {logits[i]}, .teacher = {logits[j].detach()}});
      divergence = divergence.defined() ? divergence + one : one;
    }
    add(peer + ", others", divergence / static_cast<double>(logits.size() - 1), options_.weight);
  }
  return sum;
}

std::vector<TermValue> MutualDistillation::values() const {
  return values_;
}

}  // namespace ulp::distill
