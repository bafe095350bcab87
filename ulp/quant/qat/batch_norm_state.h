// A captured batch norm whose statistics can be frozen while the rest of a model trains. Internal.
#pragma once

#include <memory>

#include "ulp/graph/graph.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::quant {

struct QatState;

/// The tensors and numbers of one aten::batch_norm. The tensors are those of the model.
struct BatchNormState {
  at::Tensor gamma, beta;  ///< undefined without affine parameters
  at::Tensor mean, var;    ///< running statistics
  at::Tensor counter;      ///< num_batches_tracked; undefined where the model does not count
  double momentum = 0.1, eps = 1e-5;

  /// With the statistics of the batch (and then updates the running ones and counts), or the running ones.
  at::Tensor normalize(const at::Tensor& x, bool batch_statistics) const;
  /// sqrt(running variance + eps).
  at::Tensor deviation() const;
  /// gamma / sqrt(running variance + eps): what folding multiplies the weights with.
  at::Tensor factor() const;
};

/// True if the statistics follow the mode, so that there is something to freeze.
bool is_freezable(const graph::Graph& graph, const graph::Node& norm);

/// Takes the counting of batches out of the graph: it is done by normalize() from now on.
BatchNormState take_batch_norm(graph::Graph& graph, const graph::Node& norm);

/// A batch norm that is folded into no layer.
class FreezableBatchNorm final : public libtorch::TensorModule {
 public:
  FreezableBatchNorm(BatchNormState norm, std::shared_ptr<const QatState> state)
      : norm_(std::move(norm)), state_(std::move(state)) {}
  at::Tensor forward(const at::Tensor& x) override;

 private:
  BatchNormState norm_;
  std::shared_ptr<const QatState> state_;
};

}  // namespace ulp::quant
