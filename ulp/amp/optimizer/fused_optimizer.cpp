#include "ulp/amp/optimizer/fused_optimizer.h"

#include <ATen/Functions.h>

#include <unordered_set>

#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

std::vector<torch::optim::OptimizerParamGroup> checked(const std::vector<FusedGroup>& groups) {
  if (groups.empty()) fail("amp.FusedOptimizer", "expected at least one parameter group, got none");
  std::vector<torch::optim::OptimizerParamGroup> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    const FusedGroup& group = groups[g];
    validate(group.rule);
    for (size_t i = 0; i < group.params.size(); ++i) {
      check_parameter(group.params[i], group.masters, g, i);
      if (!seen.insert(group.params[i].unsafeGetTensorImpl()).second) {
        fail("amp.FusedOptimizer", "expected each parameter once, got parameter ", i, " of group ", g,
             " a second time");
      }
    }
    result.emplace_back(group.params);
  }
  return result;
}

std::vector<FusedGroup> one_group(std::vector<at::Tensor> params, UpdateRule rule, MasterWeights masters,
                                  MomentFormat moments) {
  std::vector<FusedGroup> groups;
  groups.push_back({std::move(params), rule, masters, moments});
  return groups;
}

/// (parameter << 16) + low as the bits of a float.
at::Tensor join_halves(const at::Tensor& parameter, const at::Tensor& low) {
  const at::Tensor high = parameter.view(c10::kShort).to(c10::kInt) * 65536;
  return (high + low.to(c10::kInt)).view(c10::kFloat);
}

}  // namespace

double FusedOptions::get_lr() const {
  return std::visit([](const auto& chosen) { return chosen.lr; }, rule);
}

void FusedOptions::set_lr(double lr) {
  std::visit([lr](auto& chosen) { chosen.lr = lr; }, rule);
}

FusedOptimizer::FusedOptimizer(std::vector<at::Tensor> params, UpdateRule rule, MasterWeights masters,
                               uint64_t seed, MomentFormat moments)
    : FusedOptimizer(one_group(std::move(params), rule, masters, moments), seed) {}

FusedOptimizer::FusedOptimizer(const std::vector<FusedGroup>& groups, uint64_t seed)
    : Optimizer(checked(groups), std::make_unique<FusedOptions>()), seed_(seed) {
  // Set here, because add_param_group() keeps the options of LibTorch's own optimizers only.
  const auto options = [](const FusedGroup& group) {
    return std::make_unique<FusedOptions>(group.rule, group.masters, group.moments);
  };
  for (size_t g = 0; g < groups.size(); ++g) param_groups_[g].set_options(options(groups[g]));
  defaults_ = options(groups.front());
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode grad_mode(true);
    loss = closure();
  }
  apply_gradients(*this, collect_gradients(*this), 1.0f, 1.0f);
  return loss;
}

at::Tensor FusedOptimizer::master_weight(const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  for (const auto& group : param_groups()) {
    for (const at::Tensor& own : group.params()) {
      if (!own.is_same(parameter)) continue;
      const auto found = state().find(own.unsafeGetTensorImpl());
      const at::Tensor weight = own.detach();
      if (found == state().end()) return weight.to(c10::kFloat);
      const at::Tensor& master = static_cast<const FusedParamState&>(*found->second).master;
      if (!master.defined()) return weight.to(c10::kFloat);
      if (master.scalar_type() == c10::kFloat) return master;
      if (master.scalar_type() == c10::kShort) return join_halves(weight, master);
      return weight.to(c10::kFloat) + master.to(c10::kFloat);
    }
  }
  fail("amp.FusedOptimizer.master_weight", "expected a parameter of this optimizer, got another tensor");
}

void FusedOptimizer::reset_masters() {
  for (auto& entry : state()) static_cast<FusedParamState&>(*entry.second).master.reset();
}

}  // namespace ulp::amp
