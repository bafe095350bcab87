// A distillation task: the networks that train, the sources they learn from, and the loss of a batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::distill {

/// One batch.
struct Batch {
  std::vector<at::Tensor> inputs;
  /// Classes, int64 (N) or (N, T); kUnlabelled where nobody knows them. Undefined: of none.
  at::Tensor targets = {};
  at::Tensor samples = {};  ///< numbers of the samples, int64 (N), or undefined
};

/// The target of what has no label; cross-entropy leaves it out.
inline constexpr int64_t kUnlabelled = -100;

/// The mean cross-entropy of logits (..., classes) over the targets (...) that are not kUnlabelled, in fp32;
/// 0 where all are. Throws ulp::Error for shapes that do not fit.
ULP_API at::Tensor labelled_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The value of one part of a loss in one batch.
struct TermValue {
  std::string name;
  double value = 0, weight = 0;
};

/// Networks that train together by a loss of their own. As a module it holds all that a checkpoint needs to
/// continue.
class ULP_API DistillationTask : public torch::nn::Module {
 public:
  ~DistillationTask() override;
  /// The output of the network that is evaluated; what the loss looks at is kept for loss(). Under the
  /// caller's autocast.
  virtual at::Tensor forward(const Batch& batch) = 0;
  /// The loss of what forward() was last given; to be called outside of autocast.
  virtual at::Tensor loss(const Batch& batch) = 0;
  /// The parts of the last loss.
  virtual std::vector<TermValue> values() const = 0;
};

}  // namespace ulp::distill
