// A prepared update has the bits of fused_step, for every rule and store of moments, and sees what changes between steps.
#include "ulp/amp/optimizer/prepared_update.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"

namespace ulp::amp {
namespace {

struct PreparedPair {
  std::vector<at::Tensor> ours, theirs;
  explicit PreparedPair(uint64_t seed) {
    torch::manual_seed(static_cast<int64_t>(seed));
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{70, 70}, {33}, {1}, {20000}}) {
      ours.push_back(torch::randn(sizes).requires_grad_());
      theirs.push_back(ours.back().detach().clone().requires_grad_());
    }
  }
};

std::vector<PreparedGradient> gradients_for(const std::vector<at::Tensor>& parameters) {
  std::vector<PreparedGradient> made;
  for (const at::Tensor& parameter : parameters)
    made.push_back({parameter, torch::zeros_like(parameter).detach()});
  return made;
}

/// One step of both from new gradients.
void step_both(PreparedPair& pair, PreparedUpdate& update, FusedOptimizer& optimizer,
               const std::vector<PreparedGradient>& gradients, std::optional<double> max_norm) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor(gradients[i].gradient).normal_();
    pair.theirs[i].mutable_grad() = gradients[i].gradient.clone();
  }
  const FusedStepResult ours = update.apply(max_norm, false);
  const FusedStepResult theirs = fused_step(optimizer, nullptr, {.max_norm = max_norm});
  EXPECT_EQ(ours.result, theirs.result);
  EXPECT_EQ(ours.clip_factor, theirs.clip_factor);
  for (size_t i = 0; i < gradients.size(); ++i) ASSERT_TRUE(torch::equal(pair.ours[i], pair.theirs[i])) << i;
}

TEST(PreparedUpdate, HasTheBitsOfFusedStep) {
  const std::vector<UpdateRule> rules = {SgdRule{.lr = 0.1},
                                         SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.5},
                                         AdamRule{.weight_decay = 0.1}, AdamWRule{}};
  for (const UpdateRule& rule : rules) {
    for (const MomentFormat moments :
         {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8, MomentFormat::int4}) {
      SCOPED_TRACE(std::string(name_of(rule)) + " " + to_string(moments));
      PreparedPair pair(1);
      FusedOptimizer ours(pair.ours, rule, MasterWeights::fp32, 7, moments),
          theirs(pair.theirs, rule, MasterWeights::fp32, 7, moments);
      const auto gradients = gradients_for(pair.ours);
      PreparedUpdate update(ours, gradients);
      update.settle();
      for (int i = 0; i < 3; ++i)
        step_both(pair, update, theirs, gradients, i == 1 ? std::optional(2.0) : std::nullopt);
    }
  }
}

TEST(PreparedUpdate, SeesMasksRatesAndStateThatChange) {
  PreparedPair pair(2);
  FusedOptimizer ours(pair.ours, AdamRule{}), theirs(pair.theirs, AdamRule{});
  const auto gradients = gradients_for(pair.ours);
  PreparedUpdate update(ours, gradients);
  step_both(pair, update, theirs, gradients, 1.0);
  at::Tensor bits = torch::randint(256, {613}, torch::kByte);
  bits[612] = 15;
  for (auto [optimizer, parameters] : {std::pair(&ours, &pair.ours), std::pair(&theirs, &pair.theirs)}) {
    optimizer->set_mask((*parameters)[0], bits);
    optimizer->param_groups()[0].options().set_lr(0.05);
  }
  for (int i = 0; i < 2; ++i) step_both(pair, update, theirs, gradients, 1.0);
  for (auto [optimizer, parameters] : {std::pair(&ours, &pair.ours), std::pair(&theirs, &pair.theirs)}) {
    optimizer->clear_mask((*parameters)[0]);
    // As loading a checkpoint does: other tensors in other objects.
    const auto old = std::move(optimizer->state()[(*parameters)[3].unsafeGetTensorImpl()]);
    auto state = std::make_unique<FusedParamState>(static_cast<const FusedParamState&>(*old));
    state->step = 40;
    state->exp_avg = state->exp_avg.clone();
    state->exp_avg_sq = state->exp_avg_sq.clone();
    optimizer->state()[(*parameters)[3].unsafeGetTensorImpl()] = std::move(state);
  }
  for (int i = 0; i < 2; ++i) step_both(pair, update, theirs, gradients, 1.0);
}

TEST(PreparedUpdate, RefusesWhatItCannotUpdate) {
  const at::Tensor parameter = torch::randn({4}).requires_grad_(), other = torch::randn({4}),
                   narrow = torch::randn({4}).to(torch::kBFloat16).requires_grad_();
  FusedOptimizer optimizer({parameter, narrow}, AdamRule{});
  const auto refusal = [&](const at::Tensor& of, const at::Tensor& gradient) {
    return ulp::test::error_of([&] { PreparedUpdate(optimizer, {{of, gradient}}); });
  };
  EXPECT_TRUE(ulp::test::contains(refusal(other, other), "expected a parameter of the optimizer"));
  EXPECT_TRUE(ulp::test::contains(refusal(narrow, torch::randn({4})), "expected an fp32 parameter"));
  EXPECT_TRUE(ulp::test::contains(refusal(parameter, torch::randn({5})), "[5]"));
  FusedOptimizer offloaded({FusedGroup{.params = {parameter}, .rule = AdamRule{}}}, 0, {.to_host = true});
  EXPECT_TRUE(ulp::test::contains(ulp::test::error_of([&] {
                                    PreparedUpdate(offloaded, {{parameter, other}});
                                  }),
                                  "to_host"));
  PreparedUpdate update(optimizer, {{parameter, other}});
  EXPECT_TRUE(ulp::test::contains(ulp::test::error_of([&] { update.apply(-1.0, false); }), "max_norm > 0"));
}

}  // namespace
}  // namespace ulp::amp
