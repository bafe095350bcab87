// Self distillation (Zhang et al. 2019, "Be Your Own Teacher"): classifiers behind inner layers learn from
// the labels and from the network's own last layer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/distill/tap.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distill {

/// How the exits learn.
struct ExitOptions {
  std::vector<std::string> places;  ///< where the exits are (place.h), shallow ones first
  std::string features = {};        ///< the place that their features are to be like; empty: only logits
  double divergence =
      0.3;  ///< share of the divergence from the last layer's prediction; the labels have the rest
  double feature_weight = 0.03;  ///< of the mean squared difference of features
  double temperature = 3;
};

/// The loss is CE of the network + the sum over the exits of (1 - a) CE + a T^2 KL(last || exit) + b
/// MSE(features), the last layer's logits and features without gradient. An exit is average pooling over the
/// pixels or tokens and a linear layer; its features are another linear layer of the pooled values.
class ULP_API SelfDistillation final : public DistillationTask {
 public:
  /// Throws ulp::Error for places that name nothing or hold no features, and options out of range.
  SelfDistillation(std::shared_ptr<graph::GraphModule> network, ExitOptions options, const Batch& example);
  ~SelfDistillation() override;

  at::Tensor forward(const Batch& batch) override;
  at::Tensor loss(const Batch& batch) override;
  /// The network's cross-entropy, then of each exit its labels, divergence and features.
  std::vector<TermValue> values() const override;
  /// The logits of every exit and, last, of the network.
  std::vector<at::Tensor> all_logits(const Batch& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distill
