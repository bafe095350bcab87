// Optimizers under masks: held elements stay bit for bit, the others train as if there were no mask.
#include "ulp/prune/masks/hold_masks.h"

#include "support.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/prune/masks/bit_mask.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::prune::tests {
namespace {

using amp::FusedOptimizer;
using Tensors = std::vector<at::Tensor>;

struct Keeping {
  const char* name;
  at::ScalarType type;
  amp::MasterWeights masters;
  amp::MomentFormat moments;
};
const Keeping kKeepings[] = {
    {"Fp32", at::kFloat, amp::MasterWeights::fp32, amp::MomentFormat::fp32},
    {"Fp32Bf16Moments", at::kFloat, amp::MasterWeights::fp32, amp::MomentFormat::bf16},
    {"Bf16Copies", at::kBFloat16, amp::MasterWeights::fp32, amp::MomentFormat::fp32},
    {"Fp16Copies", at::kHalf, amp::MasterWeights::fp32, amp::MomentFormat::fp32},
    {"Split", at::kBFloat16, amp::MasterWeights::split, amp::MomentFormat::fp32},
    {"SplitBf16Moments", at::kBFloat16, amp::MasterWeights::split, amp::MomentFormat::bf16},
    {"Stochastic", at::kBFloat16, amp::MasterWeights::stochastic, amp::MomentFormat::fp32},
    {"Kahan", at::kBFloat16, amp::MasterWeights::kahan, amp::MomentFormat::bf16},
};

const std::vector<std::pair<const char*, amp::UpdateRule>> kRules = {
    {"Sgd", amp::SgdRule{.lr = 0.1, .weight_decay = 0.1}},
    {"Momentum", amp::SgdRule{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
    {"Adam", amp::AdamRule{.lr = 0.01, .weight_decay = 0.1}},
    {"AdamW", amp::AdamWRule{.lr = 0.01, .weight_decay = 0.1}}};

Tensors make_weights(at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(11);
  Tensors made;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1}, {7, 3}, {1501}, {6, 5, 3, 3}}) {
    at::Tensor values = torch::randn(sizes, generator).to(type);
    if (values.dim() == 4) values = values.contiguous(at::MemoryFormat::ChannelsLast);
    made.push_back(values.requires_grad_());
  }
  return made;
}

void set_gradients(const Tensors& parameters, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  for (at::Tensor parameter : parameters) {
    const at::Tensor values = torch::randn(parameter.sizes(), generator);
    parameter.mutable_grad() = at::empty_like(parameter.detach()).copy_(values);
  }
}

Tensors copies(const Tensors& parameters) {
  Tensors made;
  for (const at::Tensor& each : parameters) made.push_back(each.detach().clone().requires_grad_());
  return made;
}

amp::FusedParamState& state_of(FusedOptimizer& optimizer, const at::Tensor& parameter) {
  return static_cast<amp::FusedParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
}

/// Trains with and without masks from the same state, masks being set after the second step of both. Every
/// instruction set: tests/kernels/training.
void expect_held(const Keeping& how, const amp::UpdateRule& rule) {
  Tensors plain = make_weights(how.type), masked = copies(plain);
  FusedOptimizer without(plain, rule, how.masters, 5, how.moments),
      with(masked, rule, how.masters, 5, how.moments);
  std::vector<at::Tensor> keeps, before, masters;
  for (uint64_t step = 0; step < 22; ++step) {
    set_gradients(plain, step);
    set_gradients(masked, step);
    if (step == 2) {
      for (size_t i = 0; i < masked.size(); ++i) {
        keeps.push_back(random_mask(masked[i].sizes(), i + 3));
        before.push_back(masked[i].detach().clone());
        masters.push_back(with.master_weight(masked[i]).clone());
        with.set_mask(masked[i], pack_mask(keeps[i]));
      }
    }
    without.step();
    with.step();
  }
  for (size_t i = 0; i < masked.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor keep = keeps[i], pruned = ~keep;
    EXPECT_TRUE(same_bits(masked[i].masked_select(keep), plain[i].masked_select(keep)));
    EXPECT_TRUE(same_bits(masked[i].masked_select(pruned), before[i].masked_select(pruned)));
    const at::Tensor now = with.master_weight(masked[i]);
    EXPECT_TRUE(same_bits(now.masked_select(pruned), masters[i].masked_select(pruned)));
    EXPECT_TRUE(same_bits(now.masked_select(keep), without.master_weight(plain[i]).masked_select(keep)));
    const auto& state = state_of(with, masked[i]);
    const auto& other = state_of(without, plain[i]);
    for (const auto member : {&amp::FusedParamState::momentum_buffer, &amp::FusedParamState::exp_avg,
                              &amp::FusedParamState::exp_avg_sq}) {
      const at::Tensor moment = state.*member;
      if (!moment.defined()) continue;
      EXPECT_EQ(moment.masked_select(pruned).count_nonzero().item<int64_t>(), 0);
      EXPECT_TRUE(same_bits(moment.masked_select(keep), (other.*member).masked_select(keep)));
    }
  }
  EXPECT_FALSE(same_bits(masked[2].masked_select(~keeps[2]), plain[2].masked_select(~keeps[2])));
}

TEST(HoldMasks, MaskedElementsStayAndTheOthersTrainAsBefore) {
  for (const Keeping& how : kKeepings) {
    for (const auto& [name, rule] : kRules) {
      SCOPED_TRACE(::testing::Message() << how.name << ' ' << name);
      expect_held(how, rule);
    }
  }
}

TEST(HoldMasks, HeldGradientsAreInNoNormAndMakeNoStepSkipped) {
  at::Tensor held = torch::ones({300}).requires_grad_(), free = torch::ones({3}).requires_grad_();
  FusedOptimizer optimizer({held, free}, amp::SgdRule{.lr = 1});
  at::Tensor keep = torch::zeros({300}, at::kBool);
  keep[7] = true;
  optimizer.set_mask(held, pack_mask(keep));
  held.mutable_grad() = torch::full({300}, NAN);
  held.mutable_grad()[7] = 3;
  free.mutable_grad() = torch::tensor({4.0F, 0.0F, 0.0F});
  const auto done = amp::fused_step(optimizer, nullptr, {.max_norm = 100.0});
  EXPECT_EQ(done.result, amp::StepResult::stepped);
  EXPECT_EQ(done.grad_norm, 5);
  EXPECT_EQ(held[7].item<float>(), -2);
  EXPECT_EQ(held.sum().item<float>(), 297);
  optimizer.clear_mask(held);
  EXPECT_EQ(optimizer.mask_of(held), nullptr);
  EXPECT_EQ(amp::fused_step(optimizer, nullptr, {.max_norm = 100.0}).result,
            amp::StepResult::skipped_nonfinite);
}

TEST(HoldMasks, BadMasksAreErrors) {
  at::Tensor weight = torch::ones({4, 5}).requires_grad_(), other = torch::ones({4, 5});
  FusedOptimizer optimizer({weight}, amp::SgdRule{});
  EXPECT_SAYS(error_of([&] {
                optimizer.set_mask(other, pack_mask(random_mask({4, 5}, 1)));
              }),
              "another tensor");
  EXPECT_SAYS(error_of([&] {
                optimizer.set_mask(weight, pack_mask(random_mask({4, 3}, 1)));
              }),
              "of 3 bytes for 20 elements, got 2");
  optimizer.set_mask(weight, pack_mask(random_mask({4, 5}, 1)));
  weight.mutable_grad() = torch::ones({4, 5});
  weight.set_data(torch::ones({5, 4}));
  weight.mutable_grad() = torch::ones({5, 4});
  EXPECT_SAYS(error_of([&] { optimizer.step(); }), "as it was when its mask was set");
}

TEST(HoldMasks, AGraphsMasksHoldItsParameters) {
  const auto module = two_layers();
  FusedOptimizer optimizer(module->parameters(), amp::AdamWRule{.lr = 0.01, .weight_decay = 0.5});
  const at::Tensor x = torch::randn({16, 12}), keep = random_mask({20, 12}, 1);
  const at::Tensor weight = module->named_parameters()["fc1.weight"], before = weight.detach().clone();
  const auto train = [&](auto& with) {
    for (int step = 0; step < 3; ++step) {
      with.zero_grad();
      module->forward(x).pow(2).sum().backward();
      with.step();
    }
  };
  set_mask(*module, "fc1.weight", keep);
  EXPECT_EQ(hold_masks(optimizer, *module, masks(module->graph())), 1);
  train(optimizer);
  EXPECT_TRUE(same_bits(weight.masked_select(~keep), before.masked_select(~keep)));
  EXPECT_GT((weight != before).masked_select(keep).sum().item<int64_t>(), 0);
  remove_masks(*module);
  EXPECT_EQ(hold_masks(optimizer, *module, {}), 0);
  train(optimizer);
  EXPECT_FALSE(same_bits(weight.masked_select(~keep), before.masked_select(~keep)));
}

TEST(HoldMasks, ModulesWithoutTheParameterAreErrors) {
  const auto module = two_layers();
  FusedOptimizer optimizer(module->parameters(), amp::SgdRule{});
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 1));
  torch::nn::Linear other(3, 3);
  EXPECT_SAYS(error_of([&] { hold_masks(optimizer, *other, masks(module->graph())); }),
              "expected a module with the parameter 'fc1.weight'");
}

TEST(HoldMasks, MasksHoldThroughQuantizationAwareTraining) {
  const auto module = two_layers();
  const at::Tensor keep = random_mask({20, 12}, 1, 0.3), x = torch::randn({16, 12});
  set_mask(*module, "fc1.weight", keep);
  const auto qat = quant::prepare_qat(module, quant::QatRecipe().tensors);
  FusedOptimizer optimizer(qat->parameters(), amp::SgdRule{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1});
  hold_masks(optimizer, *qat, masks(module->graph()));
  const at::Tensor weight = qat->named_parameters()["fc1.weight"];
  const at::Tensor before = weight.detach().clone();
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    qat->forward(x).pow(2).sum().backward();
    optimizer.step();
  }
  EXPECT_FALSE(torch::equal(weight, before));
  EXPECT_EQ(weight.masked_select(~keep).count_nonzero().item<int64_t>(), 0);
  qat->eval();
  const auto converted = quant::convert_qat(qat);
  at::Tensor codes;
  for (const auto& [name, attribute] : converted->graph().attributes()) {
    if (attribute.tensor.sizes() == keep.sizes() && attribute.tensor.scalar_type() == at::kChar)
      codes = attribute.tensor;
  }
  ASSERT_TRUE(codes.defined());
  EXPECT_EQ(codes.masked_select(~keep).count_nonzero().item<int64_t>(), 0);
}

template <typename Optimizer, typename Options>
void expect_masked_step(const Options& options) {
  const auto module = two_layers(), twin = two_layers();
  const at::Tensor keep = random_mask({20, 12}, 1), x = torch::randn({16, 12});
  set_mask(*module, "fc1.weight", keep);
  set_mask(*twin, "fc1.weight", keep);
  const at::Tensor weight = module->named_parameters()["fc1.weight"], before = weight.detach().clone();
  Optimizer optimizer(module->parameters(), options), plain(twin->parameters(), options);
  MaskedStep masked(optimizer, *module, masks(module->graph()));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    plain.zero_grad();
    module->forward(x).pow(2).sum().backward();
    twin->forward(x).pow(2).sum().backward();
    masked.step();
    plain.step();
  }
  const at::Tensor other = twin->named_parameters()["fc1.weight"];
  EXPECT_TRUE(same_bits(weight.masked_select(~keep), before.masked_select(~keep)));
  EXPECT_TRUE(same_bits(weight.masked_select(keep), other.masked_select(keep)));
  EXPECT_FALSE(same_bits(other.masked_select(~keep), before.masked_select(~keep))) << "decay moves them";
}

TEST(MaskedStep, HoldsInAnyOptimizerOfLibTorch) {
  expect_masked_step<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  expect_masked_step<torch::optim::Adam>(torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(true));
  expect_masked_step<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  expect_masked_step<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).weight_decay(0.1));
}

TEST(MaskedStep, MomentsOfHeldElementsAreZero) {
  const auto module = two_layers();
  const at::Tensor x = torch::randn({16, 12}), keep = random_mask({20, 12}, 1);
  torch::optim::Adam optimizer(module->parameters(), torch::optim::AdamOptions(0.01));
  const auto train = [&](auto& with) {
    optimizer.zero_grad();
    module->forward(x).pow(2).sum().backward();
    with.step();
  };
  train(optimizer);  // moments of all elements
  set_mask(*module, "fc1.weight", keep);
  MaskedStep masked(optimizer, *module, masks(module->graph()));
  train(masked);
  const at::Tensor weight = module->named_parameters()["fc1.weight"];
  auto& state =
      static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(weight.unsafeGetTensorImpl()));
  EXPECT_EQ(state.exp_avg().masked_select(~keep).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(state.exp_avg_sq().masked_select(~keep).count_nonzero().item<int64_t>(), 0);
  EXPECT_GT(state.exp_avg().masked_select(keep).count_nonzero().item<int64_t>(), 0);
}

TEST(MaskedStep, HoldsAroundAScalersStep) {
  const auto module = two_layers();
  const at::Tensor x = torch::randn({16, 12}), keep = random_mask({20, 12}, 1);
  set_mask(*module, "fc1.weight", keep);
  torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.1));
  amp::GradScaler scaler({.init_scale = 4.0});
  MaskedStep masked(optimizer, *module, masks(module->graph()));
  EXPECT_SAYS(error_of([&] { masked.restore(); }), "remember() before restore()");
  const at::Tensor weight = module->named_parameters()["fc1.weight"], before = weight.detach().clone();
  scaler.scale(module->forward(x).pow(2).sum()).backward();
  masked.remember();
  scaler.step(optimizer);
  masked.restore();
  EXPECT_TRUE(same_bits(weight.masked_select(~keep), before.masked_select(~keep)));
  EXPECT_FALSE(torch::equal(weight, before));
}

TEST(MaskedStep, OtherOptimizersAreErrors) {
  const auto module = two_layers();
  FusedOptimizer fused(module->parameters(), amp::SgdRule{});
  EXPECT_SAYS(error_of([&] { MaskedStep(fused, *module, {}); }), "hold_masks()");
}

}  // namespace
}  // namespace ulp::prune::tests
