// A convolution or linear layer in quantization-aware training, with the batch norm behind it. Internal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/passes/transposed_phases.h"
#include "ulp/quant/qat/batch_norm_state.h"
#include "ulp/quant/scheme/quantizer.h"

namespace ulp::quant {

/// What a captured layer computes with: a convolution, a transposed one or aten::linear. A transposed
/// convolution is computed as its inference form is, by an ordinary one of its phases; `w` and `b` of a call
/// are those of that one.
struct LayerCall {
  at::Tensor weight, bias;  ///< the model's own; bias may be undefined
  std::optional<graph::TransposedPhases> phases;
  bool is_linear = false;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;

  LayerCall(const graph::Graph& graph, const graph::Node& layer);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const;
  /// The weight that a call takes; channels of the result are dimension 0 of it, several times over where
  /// there are phases.
  at::Tensor computed_weight() const { return phases ? phases->weight_of(weight) : weight; }
  /// One number for each channel of the result as one for each of such a weight; undefined stays so.
  at::Tensor each(const at::Tensor& channels) const {
    return phases && channels.defined() ? channels.repeat({phases->phases()}) : channels;
  }
};

class QatLayer final : public libtorch::TensorModule {
 public:
  /// `input`: what quantizes the layer's input, in whose steps the bias is rounded.
  QatLayer(const std::string& label, LayerCall call, std::optional<BatchNormState> norm,
           const TensorRecipe& weight, const QatOptions& options, std::shared_ptr<const QatState> state,
           std::shared_ptr<ActivationQuantizer> input);
  at::Tensor forward(const at::Tensor& x) override;

  /// Weight and bias as they infer, with the batch norm in them; the bias is undefined where there is none.
  at::Tensor folded_weight() const;
  at::Tensor folded_bias() const;
  QParams weight_qparams() const;

 private:
  at::Tensor scaled_weight(const at::Tensor& factor) const;
  at::Tensor safe_factor() const;
  at::Tensor observed_weight() const;
  at::Tensor infer(const at::Tensor& x);
  at::Tensor train_fast(const at::Tensor& x);
  at::Tensor train_exact(const at::Tensor& x);

  std::string label_;
  LayerCall call_;
  std::optional<BatchNormState> norm_;
  BatchNormFolding folding_;
  std::shared_ptr<const QatState> state_;
  std::shared_ptr<ActivationQuantizer> input_;
  std::shared_ptr<WeightQuantizer> quantizer_;
};

}  // namespace ulp::quant
