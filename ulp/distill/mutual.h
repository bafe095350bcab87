// Deep mutual learning (Zhang, Xiang, Hospedales, Lu 2018): networks of any sizes train together, each towards the labels and
// the others' predictions.
#pragma once

#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distill {

class Loss;

/// How peers learn from each other.
struct MutualOptions {
  double weight = 1;       ///< of the divergence
  double temperature = 1;  ///< of the predictions; the paper has 1
};

/// The loss is the sum over the peers of CE + weight * T^2 * the mean over the others of KL(other || own), the others without
/// gradient (equations 4 to 8 of the paper). All peers step at once; the paper lets one step after the other.
class ULP_API MutualDistillation final : public DistillationTask {
 public:
  /// Throws ulp::Error for fewer than two peers, for one that is there twice, and for options that are not > 0.
  explicit MutualDistillation(std::vector<std::shared_ptr<graph::GraphModule>> peers,
                              MutualOptions options = {});

  /// The first peer's logits. Throws ulp::Error for peers of other classes.
  at::Tensor forward(const Batch& batch) override;
  at::Tensor loss(const Batch& batch) override;
  /// The cross-entropy and the divergence of each peer.
  std::vector<TermValue> values() const override;

  const std::vector<std::shared_ptr<graph::GraphModule>>& peers() const { return peers_; }

 private:
  std::vector<std::shared_ptr<graph::GraphModule>> peers_;
  MutualOptions options_;
  std::shared_ptr<Loss> divergence_;
  std::vector<at::Tensor> logits_;  // of the last forward()
  std::vector<TermValue> values_;
};

}  // namespace ulp::distill
