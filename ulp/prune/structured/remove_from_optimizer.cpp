#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <map>
#include <memory>

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/base/error.h"
#include "ulp/prune/masks/bit_mask.h"
#include "ulp/prune/structured/remove_units.h"

namespace ulp::prune {

namespace {

using State = torch::optim::OptimizerParamState;

/// The tensors of a parameter's state; an error for a kind that is not known.
std::vector<at::Tensor*> tensors_of(State& state, const std::string& name) {
  if (auto* fused = dynamic_cast<amp::FusedParamState*>(&state))
    return {&fused->momentum_buffer, &fused->exp_avg, &fused->exp_avg_sq, &fused->master};
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&state)) return {&sgd->momentum_buffer()};
  if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state))
    return {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()};
  if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state))
    return {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()};
  if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(&state))
    return {&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()};
  if (auto* adagrad = dynamic_cast<torch::optim::AdagradParamState*>(&state)) return {&adagrad->sum()};
  fail("prune.remove_from_optimizer",
       "expected the state of SGD, Adam, AdamW, RMSprop, Adagrad or FusedOptimizer for '", name,
       "', got another one");
}

/// What was kept of a tensor of the state, laid out as the new parameter.
at::Tensor cut_state(const at::Tensor& state, const at::Tensor& old_parameter,
                     const at::Tensor& new_parameter, const std::vector<std::vector<int64_t>>& kept,
                     const std::string& name) {
  if (state.sizes() != old_parameter.sizes()) {
    fail("prune.remove_from_optimizer", "expected state of sizes ", old_parameter.sizes(), " for '", name,
         "', got ", state.sizes());
  }
  at::Tensor part = state.detach();
  for (size_t d = 0; d < kept.size(); ++d) {
    if (static_cast<int64_t>(kept[d].size()) != part.size(static_cast<int64_t>(d)))
      part =
          part.index_select(static_cast<int64_t>(d), torch::tensor(kept[d], part.options().dtype(at::kLong)));
  }
  if (part.sizes() != new_parameter.sizes()) {
    fail("prune.remove_from_optimizer", "expected a new parameter '", name, "' of sizes ", part.sizes(),
         ", got ", new_parameter.sizes());
  }
  return torch::empty_strided(new_parameter.sizes(), new_parameter.strides(), state.options()).copy_(part);
}

/// A parameter that takes another one's place, and its state and mask if it has them.
struct Replacement {
  at::Tensor old_parameter, parameter;
  std::unique_ptr<State> state;
  at::Tensor mask_bits = {};
};

/// The mask of a fused optimizer, cut along; undefined where there is none.
at::Tensor cut_mask(const torch::optim::Optimizer& optimizer, const at::Tensor& old_parameter,
                    const at::Tensor& new_parameter, const std::vector<std::vector<int64_t>>& kept,
                    const std::string& name) {
  const auto* fused = dynamic_cast<const amp::FusedOptimizer*>(&optimizer);
  const amp::FusedMask* mask = fused ? fused->mask_of(old_parameter) : nullptr;
  if (!mask) return {};
  // Its bits are in the order of the parameter's memory.
  const at::Tensor keep =
      unpack_mask(mask->bits, {old_parameter.numel()}).as_strided(mask->sizes, mask->strides);
  return pack_mask(cut_state(keep, old_parameter, new_parameter, kept, name).contiguous());
}

}  // namespace

void remove_from_optimizer(torch::optim::Optimizer& optimizer, const Kept& kept,
                           const graph::GraphModule& old_module, const graph::GraphModule& new_module) {
  const torch::NoGradGuard no_grad;
  std::map<const void*, std::string> names;
  for (const auto& [name, attribute] : old_module.graph().attributes())
    names.emplace(attribute.tensor.unsafeGetTensorImpl(), name);
  std::vector<std::vector<Replacement>> groups;
  for (const auto& group : optimizer.param_groups()) {
    std::vector<Replacement>& replacements = groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      void* key = parameter.unsafeGetTensorImpl();
      const auto name = names.find(key);
      if (name == names.end())
        fail("prune.remove_from_optimizer", "expected parameters of the old module, got one of sizes ",
             parameter.sizes(), " that it has not");
      const graph::Attribute* made = new_module.graph().find_attribute(name->second);
      const auto indices = kept.find(name->second);
      if (!made || indices == kept.end())
        fail("prune.remove_from_optimizer", "expected '", name->second, "' in the cut module, got none");
      Replacement& replacement = replacements.emplace_back(Replacement{parameter, made->tensor, nullptr});
      replacement.mask_bits = cut_mask(optimizer, parameter, made->tensor, indices->second, name->second);
      const auto state = optimizer.state().find(key);
      if (state == optimizer.state().end()) continue;
      replacement.state = state->second->clone();
      auto* of_fused = dynamic_cast<amp::FusedParamState*>(replacement.state.get());
      if (of_fused) amp::widen_moments(*of_fused, parameter);
      for (at::Tensor* tensor : tensors_of(*replacement.state, name->second)) {
        if (tensor->defined())
          *tensor = cut_state(*tensor, parameter, made->tensor, indices->second, name->second);
      }
      if (of_fused) {
        const auto& options = static_cast<const amp::FusedOptions&>(group.options());
        amp::narrow_moments(*of_fused, made->tensor, options.moments);
      }
    }
  }
  auto* fused = dynamic_cast<amp::FusedOptimizer*>(&optimizer);
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor>& params = optimizer.param_groups()[g].params();
    for (size_t i = 0; i < groups[g].size(); ++i) {
      Replacement& replacement = groups[g][i];
      if (replacement.mask_bits.defined()) fused->clear_mask(replacement.old_parameter);
      params[i] = replacement.parameter;
      optimizer.state().erase(replacement.old_parameter.unsafeGetTensorImpl());
      if (replacement.state)
        optimizer.state()[replacement.parameter.unsafeGetTensorImpl()] = std::move(replacement.state);
      if (replacement.mask_bits.defined()) fused->set_mask(replacement.parameter, replacement.mask_bits);
    }
  }
}

}  // namespace ulp::prune
