#include "ulp/amp/optimizer/fused_optimizer.h"

#include <sstream>

#include "fused_support.h"

namespace ulp::amp::test {
namespace {

using MakeOptimizer = std::unique_ptr<torch::optim::Optimizer> (*)(Tensors);

struct Pair {
  const char* name;
  UpdateRule rule;
  MakeOptimizer libtorch;
};
std::ostream& operator<<(std::ostream& out, const Pair& pair) {
  return out << pair.name;
}

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(Tensors parameters, Options options) {
  return std::make_unique<Optimizer>(std::move(parameters), std::move(options));
}
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

const Pair kPairs[] = {
    {"Sgd", SgdRule{.lr = 0.1},
     [](Tensors p) { return make<torch::optim::SGD>(std::move(p), SGDOptions(0.1)); }},
    {"SgdMomentum", SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
     [](Tensors p) {
       return make<torch::optim::SGD>(std::move(p),
                                      SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.01));
     }},
    {"SgdNesterov", SgdRule{.lr = 0.1, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true},
     [](Tensors p) {
       return make<torch::optim::SGD>(std::move(p),
                                      SGDOptions(0.1).momentum(0.8).weight_decay(0.01).nesterov(true));
     }},
    {"Adam", AdamRule{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6},
     [](Tensors p) {
       return make<torch::optim::Adam>(std::move(p), AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6));
     }},
    {"AdamDecay", AdamRule{.weight_decay = 0.1},
     [](Tensors p) { return make<torch::optim::Adam>(std::move(p), AdamOptions(1e-3).weight_decay(0.1)); }},
    {"AdamW", AdamWRule{.lr = 0.02},
     [](Tensors p) { return make<torch::optim::AdamW>(std::move(p), AdamWOptions(0.02)); }},
};

/// LibTorch's moments of a parameter; undefined ones where its optimizer has none.
std::pair<at::Tensor, at::Tensor> moments(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = *optimizer.state().at(parameter.unsafeGetTensorImpl());
  if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(&state))
    return {adam->exp_avg(), adam->exp_avg_sq()};
  if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(&state))
    return {adamw->exp_avg(), adamw->exp_avg_sq()};
  return {static_cast<torch::optim::SGDParamState&>(state).momentum_buffer(), {}};
}

class AgainstLibTorch : public ::testing::TestWithParam<Pair> {};

/// LibTorch's square root is MKL's, whose last bit is wrong in one of six values; ours is exact. All else is
/// bit for bit the same, where LibTorch multiplies and adds with one rounding.
constexpr double kUlpOfRoot = 2;

// Both start every step from the same bits, so that one step's difference is measured.
TEST_P(AgainstLibTorch, EveryStepIsTheirs) {
  Tensors ours = make_parameters(), theirs = copies(ours);
  FusedOptimizer fused(ours, GetParam().rule);
  const auto reference = GetParam().libtorch(theirs);
  const double rate = std::visit([](const auto& rule) { return rule.lr; }, GetParam().rule);
  const double sums = ulp_of_sums();
  const torch::NoGradGuard no_grad;
  for (uint64_t step = 0; step < 6; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    const Tensors before = copies(ours);
    fused.step();
    reference->step();
    for (size_t i = 0; i + 1 < ours.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "step " << step << " parameter " << i);
      at::Tensor largest = torch::maximum(before[i].abs(), (ours[i] - before[i]).abs());
      // Where a moment cancels, its operands are as large as a gradient, or as 1 behind a division by a root.
      if (sums > 0) largest = torch::maximum(largest, rate * ours[i].grad().abs().clamp_min(1));
      const bool adam = !std::holds_alternative<SgdRule>(GetParam().rule);
      EXPECT_LE(distance_in_ulp(ours[i], theirs[i], largest), (adam ? kUlpOfRoot : 0) + sums);
      EXPECT_FALSE(ours[i].numel() > 0 && torch::equal(ours[i], before[i]));
      theirs[i].copy_(ours[i]);
      if (reference->state().empty()) continue;  // SGD without momentum
      auto [first, second] = moments(*reference, theirs[i]);
      FusedParamState& state = state_of(fused, ours[i]);
      const at::Tensor own = state.momentum_buffer.defined() ? state.momentum_buffer : state.exp_avg;
      const at::Tensor summand = torch::maximum(ours[i].grad().abs(), before[i].abs());
      if (first.defined()) {
        EXPECT_LE(distance_in_ulp(own, first, summand), sums);
        first.copy_(own);
      }
      if (second.defined()) {
        EXPECT_LE(distance_in_ulp(state.exp_avg_sq, second, summand.square()), sums);
        second.copy_(state.exp_avg_sq);
      }
    }
    EXPECT_TRUE(torch::equal(ours.back(), before.back())) << "there was no gradient";
  }
}

TEST_P(AgainstLibTorch, ManyStepsStayTogether) {
  Tensors ours = make_parameters(), theirs = copies(ours);
  FusedOptimizer fused(ours, GetParam().rule);
  const auto reference = GetParam().libtorch(theirs);
  for (uint64_t step = 0; step < 50; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    fused.step();
    reference->step();
  }
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-4, 1e-5)) << "parameter " << i;
}

INSTANTIATE_TEST_SUITE_P(Rules, AgainstLibTorch, ::testing::ValuesIn(kPairs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FusedOptimizer, TheNumberOfThreadsDoesNotMatter) {
  const int threads = at::get_num_threads();
  const auto run = [](int count) {
    at::set_num_threads(count);
    Tensors parameters = make_parameters();
    FusedOptimizer optimizer(parameters, AdamWRule{});
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
    }
    return parameters;
  };
  const Tensors one = run(1), three = run(3);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
}

TEST(FusedOptimizer, GroupsHaveRulesAndRatesOfTheirOwn) {
  auto a = torch::ones({3}).requires_grad_(), b = torch::ones({3}).requires_grad_();
  FusedOptimizer optimizer({FusedGroup{{a}, SgdRule{.lr = 0.5}}, FusedGroup{{b}, AdamWRule{.lr = 0.1}}});
  a.mutable_grad() = torch::ones({3});
  b.mutable_grad() = torch::ones({3});
  optimizer.step();
  EXPECT_EQ(a[0].item<float>(), 0.5f);
  EXPECT_NEAR(b[0].item<float>(), 1 - 0.1 * 0.01 - 0.1, 1e-6);
  auto& options = optimizer.param_groups()[0].options();
  EXPECT_EQ(options.get_lr(), 0.5);
  options.set_lr(0.25);
  optimizer.step();
  EXPECT_EQ(a[0].item<float>(), 0.25f);
}

TEST(FusedOptimizer, TheClosureRunsWithGradientsAndItsLossIsReturned) {
  auto weight = torch::full({}, 3.0f).requires_grad_();
  FusedOptimizer optimizer({weight}, SgdRule{.lr = 1});
  const torch::NoGradGuard no_grad;
  const at::Tensor loss = optimizer.step([&] {
    at::Tensor value = weight * weight;
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<float>(), 9);
  EXPECT_EQ(weight.item<float>(), -3);
}

TEST(FusedOptimizer, GradientsInAnotherLayoutAreTakenByPosition) {
  auto weight = torch::zeros({3, 4}).requires_grad_();
  FusedOptimizer optimizer({weight}, SgdRule{.lr = 1});
  const at::Tensor gradient = torch::arange(12).to(at::kFloat).view({4, 3}).t();
  weight.mutable_grad() = gradient;
  optimizer.step();
  EXPECT_TRUE(torch::equal(weight, -gradient));
  weight.mutable_grad() = torch::ones({1}).expand({3, 4});
  optimizer.step();
  EXPECT_TRUE(torch::equal(weight, -gradient - 1));
}

TEST(FusedOptimizer, AutogradSeesThatTheWeightChanged) {
  auto weight = torch::ones({2}).requires_grad_();
  FusedOptimizer optimizer({weight}, SgdRule{});
  const at::Tensor loss = (weight * weight).sum();
  weight.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(FusedOptimizer, BadParametersAndGradientsAreErrors) {
  const auto error = [](at::Tensor parameter, MasterWeights masters = MasterWeights::fp32) {
    return error_of([&] { FusedOptimizer({std::move(parameter)}, AdamWRule{}, masters); });
  };
  EXPECT_SAYS(error({}), "expected a tensor for parameter 0 of group 0");
  EXPECT_SAYS(error(torch::ones({2}, at::kDouble)), "expected fp32, bf16 or fp16 parameters");
  EXPECT_SAYS(error(torch::ones({4, 4}).slice(1, 0, 2)), "dense in memory");
  EXPECT_SAYS(error(torch::ones({2}, at::kHalf), MasterWeights::split), "expected bf16 parameters for split");
  const auto twice = torch::ones({2});
  const std::vector<FusedGroup> in_both = {{{twice}, SgdRule{}}, {{twice}, SgdRule{}}};
  EXPECT_SAYS(error_of([&] { FusedOptimizer{in_both}; }), "a second time");
  EXPECT_SAYS(error_of([] { FusedOptimizer(std::vector<FusedGroup>{}); }), "at least one parameter group");

  auto table = torch::ones({5, 2}).requires_grad_();
  FusedOptimizer optimizer({table}, SgdRule{});
  torch::embedding(table, torch::tensor({1, 1}), -1, false, /*sparse=*/true).sum().backward();
  EXPECT_SAYS(error_of([&] { optimizer.step(); }), "expected dense gradients");
  EXPECT_TRUE(torch::equal(table, torch::ones({5, 2})));
  EXPECT_SAYS(error_of([&] {
                optimizer.master_weight(torch::ones({5, 2}));
              }),
              "a parameter of this optimizer");
}

TEST(FusedOptimizer, NoParametersAreAnError) {
  EXPECT_SAYS(error_of([] { FusedOptimizer(Tensors{}, SgdRule{}); }), "at least one parameter, got none");
  EXPECT_SAYS(error_of([] { FusedOptimizer({FusedGroup{}, FusedGroup{}}); }), "at least one parameter");
  EXPECT_NO_THROW(FusedOptimizer({FusedGroup{}, FusedGroup{{torch::ones({1})}, SgdRule{}}}));
}

TEST(FusedOptimizer, ParametersOverOneAnotherAreAnError) {
  const at::Tensor all = torch::zeros({10});
  EXPECT_SAYS(error_of([&] {
                FusedOptimizer({all.narrow(0, 0, 6), all.narrow(0, 5, 5)}, SgdRule{});
              }),
              "parameter 0 of group 0 and parameter 1 of group 0 over one another");
  at::Tensor a = torch::zeros({4}), b = torch::ones({4});
  FusedOptimizer later({a, b}, SgdRule{.lr = 1});
  b.set_data(a.detach());
  for (at::Tensor* one : {&a, &b}) one->mutable_grad() = torch::ones({4});
  EXPECT_SAYS(error_of([&] { later.step(); }), "over one another");
  EXPECT_TRUE(torch::equal(a, torch::zeros({4})));
  EXPECT_SAYS(error_of([&] { FusedOptimizer({all, all.view({2, 5})}, SgdRule{}); }), "memory in common");
  EXPECT_SAYS(error_of([&] {
                FusedOptimizer({FusedGroup{{all.narrow(0, 5, 5)}, SgdRule{}}, FusedGroup{{all}, SgdRule{}}});
              }),
              "memory in common");
  EXPECT_NO_THROW(FusedOptimizer({all.narrow(0, 0, 5), all.narrow(0, 5, 5)}, SgdRule{}));
}

TEST(FusedOptimizer, AParameterThatChangedItsSizeIsAnErrorThatNamesIt) {
  for (const UpdateRule& rule : {UpdateRule(SgdRule{.momentum = 0.9}), UpdateRule(AdamWRule{})}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      auto a = torch::ones({2}, type).requires_grad_(), b = torch::ones({4, 3}, type).requires_grad_();
      FusedOptimizer optimizer({a, b}, rule);
      a.mutable_grad() = torch::ones({2}, type);
      b.mutable_grad() = torch::ones({4, 3}, type);
      optimizer.step();
      const at::Tensor before = a.detach().clone();
      b.mutable_grad().reset();
      b.set_data(torch::ones({400, 300}, type));
      b.mutable_grad() = torch::ones({400, 300}, type);
      EXPECT_SAYS(error_of([&] { optimizer.step(); }), "expected parameter 1 of group 0 as it was");
      b.mutable_grad().reset();
      b.set_data(torch::ones({3, 4}, type).t());
      b.mutable_grad() = torch::ones({4, 3}, type);
      EXPECT_SAYS(error_of([&] { optimizer.step(); }), "expected parameter 1 of group 0 as it was");
      EXPECT_TRUE(torch::equal(a.detach(), before)) << "a refused step changed a parameter";
      b.set_data(torch::ones({4, 3}, type));
      EXPECT_NO_THROW(optimizer.step());
    }
  }
}

TEST(FusedOptimizer, AWeightUnderTwoNamesIsOneParameter) {
  struct Tied : torch::nn::Module {
    torch::nn::Embedding words = register_module("words", torch::nn::Embedding(20, 8));
    at::Tensor head = register_parameter("head", words->weight);
    at::Tensor forward(const at::Tensor& ids) { return torch::linear(words(ids), head); }
  };
  torch::manual_seed(3);
  Tied tied;
  ASSERT_EQ(tied.parameters().size(), 2U);
  const at::Tensor single = tied.head.detach().clone().requires_grad_();
  FusedOptimizer optimizer(tied.parameters(), AdamRule{.lr = 0.01});
  ASSERT_EQ(optimizer.param_groups()[0].params().size(), 1U);
  FusedOptimizer added({torch::ones({2}).requires_grad_()}, SgdRule{});
  added.add_param_group(torch::optim::OptimizerParamGroup(Tensors{tied.head, tied.head}));
  EXPECT_EQ(added.param_groups()[1].params().size(), 1U);
  torch::optim::Adam once({single}, torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 3; ++step) {
    const at::Tensor ids = torch::randint(20, {3, 5});
    optimizer.zero_grad();
    once.zero_grad();
    tied.forward(ids).square().mean().backward();
    torch::linear(torch::embedding(single, ids), single).square().mean().backward();
    optimizer.step();
    once.step();
    EXPECT_TRUE(torch::allclose(tied.head, single, 1e-6, 1e-7)) << step;
  }
}

TEST(FusedOptimizer, GroupsAreAddedWithItsOwnOptionsOnly) {
  auto a = torch::ones({2}).requires_grad_(), b = torch::ones({2}).requires_grad_();
  FusedOptimizer optimizer({a}, SgdRule{.lr = 0.5});
  const auto add = [&](const at::Tensor& parameter, std::unique_ptr<torch::optim::OptimizerOptions> options) {
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({parameter}, std::move(options)));
  };
  const auto others = [] { return std::make_unique<torch::optim::SGDOptions>(0.1); };
  EXPECT_SAYS(error_of([&] { add(b, others()); }), "with FusedOptions, got others");
  const auto own = [](double lr) {
    return std::make_unique<FusedOptions>(SgdRule{.lr = lr}, MasterWeights::fp32, MomentFormat::fp32);
  };
  EXPECT_SAYS(error_of([&] { add(b, own(-1)); }), "lr >= 0");
  EXPECT_SAYS(error_of([&] { add(a, own(1)); }), "a second time");
  EXPECT_SAYS(error_of([&] { add(a.detach().narrow(0, 0, 1), own(1)); }), "memory in common");
  EXPECT_EQ(optimizer.param_groups().size(), 1u);
  add(b, own(0.25));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(Tensors{torch::ones({1})}));
  ASSERT_EQ(optimizer.param_groups().size(), 3u);
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.25);
  EXPECT_EQ(optimizer.param_groups()[2].options().get_lr(), 0.5);
  b.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_EQ(b[0].item<float>(), 0.75f);
}

TEST(FusedOptimizer, ArchivesOfLibTorchAreRefused) {
  FusedOptimizer optimizer({torch::ones({2})}, AdamWRule{});
  std::stringstream stream;
  EXPECT_SAYS(error_of([&] { torch::save(optimizer, stream); }), "expected io::save_checkpoint");
  torch::optim::SGD other({torch::ones({2})}, 0.1);
  torch::save(other, stream);
  EXPECT_SAYS(error_of([&] { torch::load(optimizer, stream); }), "expected io::load_checkpoint");
}

TEST(FusedOptimizer, RulesOutOfRangeAreErrors) {
  const auto error = [](UpdateRule rule) {
    return error_of([&] { FusedOptimizer({torch::ones({1})}, rule); });
  };
  EXPECT_SAYS(error(SgdRule{.lr = -1}), "expected lr >= 0, got -1");
  EXPECT_SAYS(error(SgdRule{.momentum = NAN}), "expected momentum >= 0");
  EXPECT_SAYS(error(SgdRule{.lr = 1e300}), "expected lr to be finite in fp32, got 1e+300");
  EXPECT_SAYS(error(SgdRule{.dampening = -INFINITY}), "expected dampening to be finite in fp32");
  EXPECT_SAYS(error(AdamRule{.eps = INFINITY}), "expected eps to be finite in fp32");
  EXPECT_SAYS(error(SgdRule{.nesterov = true}), "with nesterov");
  EXPECT_SAYS(error(AdamRule{.beta2 = 1}), "expected beta2 in [0, 1), got 1");
  EXPECT_SAYS(error(AdamRule{.beta1 = -0.1}), "expected beta1 >= 0");
  EXPECT_SAYS(error(AdamWRule{.eps = -1}), "expected eps >= 0");
  EXPECT_SAYS(error(AdamWRule{.weight_decay = -1}), "expected weight_decay >= 0");
}

}  // namespace
}  // namespace ulp::amp::test
