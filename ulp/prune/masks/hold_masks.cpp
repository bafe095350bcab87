#include "ulp/prune/masks/hold_masks.h"

#include <torch/optim.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::prune {
namespace {

/// The module's parameters that the masks are for, in their order.
std::vector<at::Tensor> masked_parameters(const char* where, const torch::nn::Module& module,
                                          const std::vector<ParameterMask>& masks) {
  const auto named = module.named_parameters();
  std::vector<at::Tensor> found;
  for (const ParameterMask& mask : masks) {
    const at::Tensor* parameter = named.find(mask.parameter);
    if (parameter == nullptr)
      fail(where, "expected a module with the parameter '", mask.parameter, "', got one without");
    if (parameter->sizes() != mask.dense.sizes()) {
      fail(where, "expected '", mask.parameter, "' of sizes ", mask.dense.sizes(), ", got ",
           parameter->sizes());
    }
    check_mask(where, ("a mask for '" + mask.parameter + "'").c_str(), mask.bits, parameter->numel());
    found.push_back(*parameter);
  }
  return found;
}

bool has(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  return std::ranges::any_of(optimizer.param_groups(), [&](const auto& group) {
    return std::ranges::any_of(group.params(), [&](const at::Tensor& own) { return own.is_same(parameter); });
  });
}

/// Calls visit with each tensor of the state that has an element for each of the parameter's.
template <typename Visit>
void for_each_moment(torch::optim::OptimizerParamState& state, const Visit& visit) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(&state)) {
    visit(sgd->momentum_buffer());
  } else if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state)) {
    for (at::Tensor* each : {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()}) visit(*each);
  } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state)) {
    for (at::Tensor* each : {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()}) visit(*each);
  } else if (auto* adagrad = dynamic_cast<torch::optim::AdagradParamState*>(&state)) {
    visit(adagrad->sum());
  } else if (auto* rms = dynamic_cast<torch::optim::RMSpropParamState*>(&state)) {
    for (at::Tensor* each : {&rms->square_avg(), &rms->momentum_buffer(), &rms->grad_avg()}) visit(*each);
  }
}

/// Whether for_each_moment() knows its state.
bool is_known(const torch::optim::OptimizerOptions& options) {
  return dynamic_cast<const torch::optim::SGDOptions*>(&options) != nullptr ||
         dynamic_cast<const torch::optim::AdamOptions*>(&options) != nullptr ||
         dynamic_cast<const torch::optim::AdamWOptions*>(&options) != nullptr ||
         dynamic_cast<const torch::optim::AdagradOptions*>(&options) != nullptr ||
         dynamic_cast<const torch::optim::RMSpropOptions*>(&options) != nullptr;
}

}  // namespace

int64_t hold_masks(amp::FusedOptimizer& optimizer, const torch::nn::Module& module,
                   const std::vector<ParameterMask>& masks) {
  const std::vector<at::Tensor> parameters = masked_parameters("prune.hold_masks", module, masks);
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) optimizer.clear_mask(parameter);
  }
  int64_t held = 0;
  for (size_t i = 0; i < masks.size(); ++i) {
    if (!has(optimizer, parameters[i])) continue;  // not trained: it stays where it is
    optimizer.set_mask(parameters[i], masks[i].bits);
    ++held;
  }
  return held;
}

MaskedStep::MaskedStep(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                       const std::vector<ParameterMask>& masks)
    : optimizer_(optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (is_known(group.options())) continue;
    fail("prune.MaskedStep",
         "expected an optimizer of kind SGD, Adam, AdamW, Adagrad or RMSprop, got another (FusedOptimizer: "
         "hold_masks())");
  }
  const std::vector<at::Tensor> parameters = masked_parameters("prune.MaskedStep", module, masks);
  for (size_t i = 0; i < masks.size(); ++i) {
    if (!has(optimizer, parameters[i])) continue;
    const at::Tensor keep = unpack_mask(masks[i].bits, parameters[i].sizes());
    held_.push_back({parameters[i], keep.logical_not().to(parameters[i].device())});
  }
}

at::Tensor MaskedStep::step(torch::optim::Optimizer::LossClosure closure) {
  remember();
  const at::Tensor loss = optimizer_.step(std::move(closure));
  restore();
  return loss;
}

void MaskedStep::remember() {
  for (Held& held : held_) held.before = held.parameter.detach().clone();
}

void MaskedStep::restore() {
  const at::NoGradGuard no_grad;
  for (const Held& held : held_) {
    if (!held.before.defined()) fail("prune.MaskedStep", "expected remember() before restore()");
  }
  for (Held& held : held_) {
    held.parameter.copy_(at::where(held.pruned, held.before, held.parameter));
    held.before.reset();
    const auto state = optimizer_.state().find(held.parameter.unsafeGetTensorImpl());
    if (state == optimizer_.state().end()) continue;
    for_each_moment(*state->second, [&](at::Tensor moment) {
      if (moment.defined()) moment.masked_fill_(held.pruned, 0);
    });
  }
}

}  // namespace ulp::prune
