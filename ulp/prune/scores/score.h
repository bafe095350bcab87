// Importance scores of weights: their registry, and those that are computed from a model at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::prune {

/// A rule that gives each weight w a number; the lowest are pruned. g is the gradient of the loss, W' the
/// masked weight.
enum class Score : uint8_t {
  magnitude,  ///< |w|
  random,     ///< uniform in [0, 1) from a seed
  gradient,   ///< |g|
  taylor,     ///< |w g|, the first-order change of the loss (Molchanov et al. 2017)
  snip,       ///< |w g| / sum of |w g| over all parameters (Lee et al. 2019): for fresh weights, scope global
  grasp,      ///< w * (H g) (Wang et al. 2020, who write -w * (H g) and prune the highest: the same)
  synflow,    ///< |w dR/dw|, R = 1' prod |W| 1 (Tanaka et al. 2020)
  wanda,      ///< |w_ij| * ||x_j||_2 over the layer's inputs (Sun et al. 2024): for the scope row
  sparsegpt,  ///< w^2 / U_jj^2, weights updated as they go (Frantar and Alistarh 2023): sparsegpt.h
  movement,   ///< sum of -lr dL/dW' W over training (Sanh et al. 2020): movement.h
  soft_movement,  ///< the same with a threshold and a penalty: movement.h
};

/// Where a score comes from.
enum class ScoreSource : uint8_t {
  weights,   ///< nothing else is needed
  loss,      ///< ScoreInputs::loss
  inputs,    ///< ScoreInputs::inputs
  training,  ///< it is gathered step by step
};
ULP_API ScoreSource source_of(Score score);

/// Inputs of scores besides the weights.
struct ScoreInputs {
  /// The loss of batch i: a scalar that depends on the module's parameters by autograd. GraSP's authors
  /// divide the logits by 200 in it.
  std::function<at::Tensor(graph::GraphModule& module, int64_t batch)> loss = {};
  int64_t batches = 1;  ///< of the loss; gradients are their mean
  /// Inputs of the model, each a list as GraphModule::forward takes it: calibration data of wanda and
  /// sparsegpt; of synflow the first one says the shapes, as ones go in.
  std::vector<std::vector<at::Tensor>> inputs = {};
  uint64_t seed = 0;  ///< of random
};

/// The scores of these parameters of the module, in the given order and of their shapes; float or double.
/// Masks that the module has are in effect. Weights, gradients (.grad), buffers, mode and masks of the module are
/// as before. Gradients of grasp are differentiated a second time by autograd, exactly. Throws ulp::Error for a
/// name that is no parameter, inputs that the score needs and that are not there, a parameter that the loss
/// does not depend on, a layer that wanda does not know (it takes linear layers and convolutions without
/// groups), and for sparsegpt and movement, which are made elsewhere.
ULP_API std::vector<at::Tensor> compute_scores(Score score, graph::GraphModule& module,
                                               const std::vector<std::string>& parameters,
                                               const ScoreInputs& inputs = {});

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::Score> {
  using enum prune::Score;
  static constexpr std::array<Word<prune::Score>, 11> list = {
      {{magnitude, "magnitude", "the weight's size"},
       {random, "random", "by lot"},
       {gradient, "gradient", "the gradient's size"},
       {taylor, "taylor", "weight times gradient"},
       {snip, "snip", "weight times gradient before training"},
       {grasp, "grasp", "what keeps the gradient's flow"},
       {synflow, "synflow", "what keeps paths open, without data"},
       {wanda, "wanda", "the weight times its inputs' norm"},
       {sparsegpt, "sparsegpt", "by the inputs' second moments, the rest corrected"},
       {movement, "movement", "where training moves the weight"},
       {soft_movement, "soft_movement", "the same, with a threshold"}}};
};
