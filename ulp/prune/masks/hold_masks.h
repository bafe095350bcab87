// Masks for optimizers, so that pruned elements stay where they are while the others train.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/export.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::prune {

/// Sets the masks on the optimizer (FusedOptimizer::set_mask) for those parameters of the module that have
/// the masks' names, and clears them on all other parameters of the optimizer. Call it when the masks have
/// changed and after loading a checkpoint. The module: the graph that has the masks, or another one with
/// parameters of the same names and shapes, as quant::prepare_qat() makes it; its weights hold the zeros
/// themselves. Returns how many masks the optimizer has now. Throws ulp::Error, before anything is changed,
/// for a name that the module has no parameter of, and for another shape.
ULP_API int64_t hold_masks(amp::FusedOptimizer& optimizer, const torch::nn::Module& module,
                           const std::vector<ParameterMask>& masks);

/// Holds masked elements in the step of any optimizer of LibTorch: their bits before the step are put back
/// after it, and its state for them becomes zero.
///
///   prune::MaskedStep masked(optimizer, module, prune::masks(module.graph()));
///   masked.step();
///
/// One step has a copy of every masked parameter. With a FusedOptimizer use hold_masks(), which
/// needs no copies.
class ULP_API MaskedStep {
 public:
  /// Throws ulp::Error as hold_masks() does, and for an optimizer of another kind than SGD, Adam, AdamW,
  /// Adagrad and RMSprop. The optimizer outlives this.
  MaskedStep(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
             const std::vector<ParameterMask>& masks);
  /// The optimizer's step: remember(), step(), restore().
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  /// Around a step that something else makes, as GradScaler::step() does: copies the masked parameters.
  void remember();
  /// Puts held elements back and makes the state zero there. Throws ulp::Error without remember().
  void restore();

 private:
  struct Held {
    at::Tensor parameter, pruned;  ///< pruned: bools
    at::Tensor before = {};        ///< the parameter at remember()
  };
  torch::optim::Optimizer& optimizer_;
  std::vector<Held> held_;
};

}  // namespace ulp::prune
