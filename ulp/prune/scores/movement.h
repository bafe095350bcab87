// Movement pruning (Sanh et al. 2020): keeps the weights that training moves away from zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::prune {

/// How scores gather.
struct MovementOptions {
  double lr = 0.01;        ///< of the scores, > 0
  bool soft = false;       ///< with the penalty; masks are those of the threshold, not of an amount
  double threshold = 0.5;  ///< soft: kept where sigmoid(S) > threshold, in [0, 1)
  double penalty = 0;      ///< soft: times the mean of sigmoid(S) over all weights is added to the loss, >= 0
};

/// The scores S of some parameters, from zero on. A step of training is:
///
///   loss.backward();     // masks set with dense_gradient: .grad is dL/dW', of pruned weights too
///   scores.update();     // S -= lr (dL/dW' W + penalty sigmoid'(S) / n); then masks the gradients
///   optimizer.step();    // which holds the masks (hold_masks, MaskedStep)
class ULP_API MovementScores {
 public:
  /// Throws ulp::Error for options out of their range and for names that are no parameters.
  MovementScores(std::shared_ptr<graph::GraphModule> module, std::vector<std::string> parameters,
                 const MovementOptions& options = {});
  /// One step, as above, with gradients of the loss times `scale`. Where one of them is not finite, no score changes: the
  /// step is one that loss scaling skips. Throws ulp::Error for a parameter without a gradient, and for a mask that hides
  /// the gradients of what it prunes.
  void update(double scale = 1);
  /// S, in the order of the parameters.
  const std::vector<at::Tensor>& scores() const { return scores_; }
  /// sigmoid(S) > threshold.
  std::vector<at::Tensor> above_threshold() const;
  /// For loading a checkpoint. Throws ulp::Error for another number of tensors or other sizes.
  void set_scores(const std::vector<at::Tensor>& scores);

 private:
  std::shared_ptr<graph::GraphModule> module_;
  std::vector<std::string> names_;
  MovementOptions options_;
  std::vector<at::Tensor> scores_;
};

}  // namespace ulp::prune
