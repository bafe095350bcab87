// Compiled steps whose tensors share memory, have unusual sizes, or change between steps: computed right or refused by name.
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "compiled_support.h"
#include "error_of.h"
#include "ulp/amp/optimizer/fused_step.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::Tensors;

at::Tensor gaussian(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

/// A compiled step of a function, and all that it refers to.
struct CompiledFunction {
  test::FunctionNet net;
  std::shared_ptr<graph::GraphModule> graph;
  amp::FusedOptimizer optimizer;
  CompiledStep step;

  CompiledFunction(const Tensors& parameters, const test::Function& function, const Tensors& inputs,
                   const LossFunction& loss, const amp::UpdateRule& rule = amp::SgdRule{.lr = 0.1},
                   const CompileOptions& options = {})
      : net(parameters),
        graph(test::capture_function(net, function, inputs)),
        optimizer(net.parameters_in_order, rule),
        step(compile(graph, loss, optimizer, options)) {}
  at::Tensor& parameter(size_t i) { return net.parameters_in_order[i]; }
};

at::Tensor two_layers(const Tensors& p, const Tensors& x) {
  return torch::linear(torch::tanh(torch::linear(x[0], p[0], p[1])), p[2]);
}

/// The message of compile().
std::string refusal_of(const test::Function& function, const Tensors& parameters, const Tensors& inputs,
                       const LossFunction& loss) {
  return error_of([&] { CompiledFunction(parameters, function, inputs, loss); });
}

TEST(CompiledMemory, AnActivationLeavesAProductThatOthersRead) {
  torch::manual_seed(41);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6})};
  const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> reads = {
      {"contiguous", [](const at::Tensor& h) { return torch::relu(h.contiguous()) + h; }},
      {"contiguous, read after",
       [](const at::Tensor& h) {
         const at::Tensor same = h.contiguous();
         return torch::relu(h) + same;
       }},
      {"view",
       [](const at::Tensor& h) {
         return torch::relu(h.view({-1, 6})) + h;
       }},
      {"flatten", [](const at::Tensor& h) { return torch::relu(h.flatten(1)) * h; }},
      {"slice", [](const at::Tensor& h) { return torch::leaky_relu(h.slice(1, 0, 6), 0.1) - h; }},
      {"dropout", [](const at::Tensor& h) { return torch::relu(torch::dropout(h, 0.0, true)) + h; }},
      {"dropout in eval mode",
       [](const at::Tensor& h) { return torch::relu(torch::dropout(h, 0.5, false)) + h; }},
      {"squeeze",
       [](const at::Tensor& h) {
         return torch::relu(h.unsqueeze(1).squeeze(1)) + h.unsqueeze(1).squeeze(1);
       }},
      {"two views",
       [](const at::Tensor& h) { return torch::relu(h.flatten(1)) + torch::tanh(h.flatten(1)); }},
      {"detached", [](const at::Tensor& h) { return torch::relu(h) + h.detach(); }},
      {"one view alone", [](const at::Tensor& h) { return torch::relu(h.flatten(1)); }},
  };
  for (const auto& [name, read] : reads) {
    const test::Function net = [f = read](const Tensors& p, const Tensors& x) {
      return f(torch::linear(x[0], p[0], p[1]));
    };
    expect_gradients(name, net, parameters, {gaussian({7, 5})}, LossFunction::mse(), gaussian({7, 6}));
  }
  const test::Function rows = [](const Tensors& p, const Tensors& x) {
    const at::Tensor h = torch::linear(x[0], p[0], p[1]);
    return torch::relu(h.flatten(0, 1)).view({-1, 3, 6}) + h;
  };
  expect_gradients("rows", rows, parameters, {gaussian({4, 3, 5})}, LossFunction::mse(), gaussian({4, 3, 6}));
  // A view that nobody else reads still is fused: transpose, product, loss and gradients.
  CompiledFunction plain(
      parameters,
      [](const Tensors&p, const Tensors&x) { return torch::relu(torch::linear(x[0], p[0], p[1])); },
      {gaussian({7, 5})}, LossFunction::mse()),
      viewed(
          parameters,
          [](const Tensors&p, const Tensors&x) {
            return torch::relu(torch::linear(x[0], p[0], p[1]).flatten(1));
          },
          {gaussian({7, 5})}, LossFunction::mse());
  EXPECT_EQ(plain.step.instruction_count(), viewed.step.instruction_count());
}

TEST(CompiledMemory, BiasesOfOtherSizes) {
  torch::manual_seed(42);
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    return torch::relu(torch::linear(x[0], p[0], p[1]));
  };
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1}, std::vector<int64_t>{},
                                            std::vector<int64_t>{9}, std::vector<int64_t>{1, 9}}) {
    expect_gradients("bias of " + std::to_string(sizes.size()) + " dimensions", net,
                     {gaussian({9, 5}), gaussian(sizes)}, {gaussian({7, 5})}, LossFunction::mse(),
                     gaussian({7, 9}));
  }
  // Without a batch each row has its own bias.
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{7, 9}, std::vector<int64_t>{7, 1}}) {
    const Tensors parameters = {gaussian({9, 5}), gaussian(sizes)};
    test::FunctionNet fixed(parameters);
    const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 9});
    const auto graph = graph::capture(
        fixed, [&](const Tensors& given) { return c10::IValue(net(fixed.parameters_in_order, given)); }, {x},
        {.batch_dims = {-1}, .far_sizes = false});
    graph->train();
    amp::FusedOptimizer optimizer(fixed.parameters_in_order, amp::SgdRule{.lr = 0});
    CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
    const at::Tensor loss = torch::mse_loss(net(fixed.parameters_in_order, {x}), y);
    loss.backward();
    EXPECT_NEAR(step.step(x, y), loss.item<float>(), 0x1p-18F * loss.item<float>());
    for (at::Tensor& parameter : fixed.parameters_in_order) {
      const at::Tensor expected = parameter.grad();
      EXPECT_LE((step.gradient(parameter) - expected).abs().max().item<float>(),
                0x1p-18F * expected.abs().max().item<float>());
    }
  }
}

TEST(CompiledMemory, RefusesToIgnoreAClass) {
  torch::manual_seed(43);
  const Tensors parameters = {gaussian({9, 5}), gaussian({9}), gaussian({3, 9})},
                inputs = {gaussian({8, 5}), torch::randint(3, {8}, at::kLong)};
  const auto by_class = [](int64_t ignored, bool log_probabilities) -> test::Function {
    return [=](const Tensors& p, const Tensors& x) {
      const at::Tensor logits = two_layers(p, x);
      return log_probabilities
                 ? torch::nll_loss(torch::log_softmax(logits, -1), x[1], {}, at::Reduction::Mean, ignored)
                 : torch::cross_entropy_loss(logits, x[1], {}, at::Reduction::Mean, ignored);
    };
  };
  for (const bool log_probabilities : {false, true}) {
    for (const int64_t ignored : {0, 2}) {
      const std::string message =
          refusal_of(by_class(ignored, log_probabilities), parameters, inputs, LossFunction::none());
      EXPECT_TRUE(contains(message, "expected an ignore_index that is no class")) << message;
    }
    for (const int64_t ignored : {-100, 3}) {
      const test::Function taken = by_class(ignored, log_probabilities);
      expect_gradients("ignored elsewhere", taken, parameters, inputs, LossFunction::none());
      CompiledFunction of(parameters, taken, inputs, LossFunction::none());
      const at::Tensor classes = torch::full({8}, ignored, at::kLong);
      EXPECT_TRUE(contains(error_of([&] { of.step.step({inputs[0], classes}); }), "in [0, 3)"));
    }
  }
}

TEST(CompiledMemory, RefusesNetworksThatFollowNumbersOfBuffers) {
  struct Switched : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 3));
    at::Tensor twice = register_buffer("twice", torch::tensor(true));
    at::Tensor forward(const at::Tensor& x) { return twice.item<bool>() ? layer(x) * 2 : layer(x); }
  } net;
  const auto graph = capture(net, {gaussian({5, 4})});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  EXPECT_TRUE(contains(error_of([&] { compile(graph, LossFunction::mse(), optimizer); }), "reads 'twice'"));
}

TEST(CompiledMemory, ParametersThatAreDetached) {
  torch::manual_seed(44);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  const std::vector<std::pair<std::string, test::Function>> networks = {
      {"weight",
       [](const Tensors& p, const Tensors& x) {
         return torch::linear(torch::tanh(torch::linear(x[0], p[0].detach(), p[1])), p[2]);
       }},
      {"bias",
       [](const Tensors& p, const Tensors& x) {
         return torch::linear(torch::tanh(torch::linear(x[0], p[0], p[1].detach())), p[2]);
       }},
      {"once detached",
       [](const Tensors& p, const Tensors& x) {
         const at::Tensor h = torch::linear(x[0], p[0], p[1]) + torch::linear(x[0] * 0.5, p[0].detach());
         return torch::linear(h * p[1].detach(), p[2]);
       }},
      {"no_grad",
       [](const Tensors& p, const Tensors& x) {
         at::Tensor held;
         {
           const torch::NoGradGuard no_grad;
           held = torch::linear(x[0], p[0].slice(0, 0, 6), p[1].view({6}));
         }
         return torch::linear(torch::tanh(held), p[2]);
       }},
  };
  for (const auto& [name, network] : networks)
    expect_gradients(name, network, parameters, {gaussian({7, 5})}, LossFunction::mse(), gaussian({7, 3}));
  // The alias follows the parameter.
  CompiledFunction of(parameters, networks[0].second, {gaussian({7, 5})}, LossFunction::mse());
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 3});
  of.step.step(x, y);
  {
    const torch::NoGradGuard no_grad;
    of.parameter(0).set_data(gaussian({6, 5}));
  }
  const float expected =
      torch::mse_loss(networks[0].second(of.net.parameters_in_order, {x}), y).item<float>();
  EXPECT_NEAR(of.step.step(x, y), expected, 1e-5F * expected);
}

TEST(CompiledMemory, RefusesParametersThatAreFrozenOrThawed) {
  torch::manual_seed(45);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 3});
  CompiledFunction of(parameters, two_layers, {x}, LossFunction::mse());
  of.step.step(x, y);
  const at::Tensor before = of.parameter(0).detach().clone(), head = of.parameter(2).detach().clone();
  of.parameter(0).set_requires_grad(false);
  std::string message = error_of([&] { of.step.step(x, y); });
  EXPECT_TRUE(contains(message, "'p0'") && contains(message, "requires_grad = true") &&
              contains(message, "compile the step again"))
      << message;
  EXPECT_TRUE(torch::equal(before, of.parameter(0)) && torch::equal(head, of.parameter(2).detach()));
  std::vector<float> result(21);
  of.step.forward(x.data_ptr<float>(), 7, result.data());  // has no gradients
  CompiledStep again = compile(of.graph, LossFunction::mse(), of.optimizer);
  again.step(x, y);
  EXPECT_TRUE(torch::equal(before, of.parameter(0)));
  EXPECT_FALSE(torch::equal(head, of.parameter(2).detach()));
  of.parameter(0).set_requires_grad(true);
  message = error_of([&] { again.step(x, y); });
  EXPECT_TRUE(contains(message, "requires_grad = false") && contains(message, "got true")) << message;
  of.step.step(x, y);
  of.optimizer.add_param_group(torch::optim::OptimizerParamGroup({gaussian({3}).requires_grad_()}));
  message = error_of([&] { of.step.step(x, y); });
  EXPECT_TRUE(contains(message, "the 3 parameters that it had") && contains(message, "got 4")) << message;
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable&) override {}
};

TEST(CompiledMemory, RefusesHooksThatComeLater) {
  torch::manual_seed(46);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 3});
  CompiledFunction hooked(parameters, two_layers, {x}, LossFunction::mse()),
      after(parameters, two_layers, {x}, LossFunction::mse());
  hooked.parameter(1).register_hook([](const at::Tensor& g) { return g * 2; });
  torch::autograd::impl::set_post_acc_grad_hooks(after.parameter(2), std::make_unique<CountingHook>());
  for (CompiledFunction* of : {&hooked, &after}) {
    const Tensors before = {of->parameter(0).detach().clone(), of->parameter(2).detach().clone()};
    EXPECT_TRUE(contains(error_of([&] { of->step.step(x, y); }), "without hooks"));
    EXPECT_TRUE(contains(error_of([&] { compile(of->graph, LossFunction::mse(), of->optimizer); }), "hook"));
    EXPECT_TRUE(torch::equal(before[0], of->parameter(0).detach()));
    EXPECT_TRUE(torch::equal(before[1], of->parameter(2).detach()));
  }
}

TEST(CompiledMemory, RefusesParametersThatBecomeOthers) {
  torch::manual_seed(47);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({5, 6})};
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 5});
  CompiledFunction of(parameters, two_layers, {x}, LossFunction::mse());
  of.step.step(x, y);
  const at::Tensor old = of.parameter(0).detach(), bias = of.parameter(1).detach().clone();
  const torch::NoGradGuard no_grad;
  const auto refusal = [&](const at::Tensor& data) {
    of.parameter(0).set_data(data);
    const std::string message = error_of([&] { of.step.step(x, y); });
    of.parameter(0).set_data(old);
    EXPECT_TRUE(torch::equal(bias, of.parameter(1)));
    return message;
  };
  std::string message = refusal(gaussian({5, 6}));
  EXPECT_TRUE(contains(message, "'p0'") && contains(message, "of sizes [6, 5]")) << message;
  message = refusal(gaussian({30}));
  EXPECT_TRUE(contains(message, "got float [30]")) << message;
  message = refusal(gaussian({5, 6}).t());
  EXPECT_TRUE(contains(message, "strides [1, 6]")) << message;
  // Two parameters in one memory would be updated twice.
  message = refusal(of.parameter(2).detach().view({6, 5}));
  EXPECT_TRUE(contains(message, "memory in common")) << message;
  at::Tensor gradient = of.step.gradient(of.parameter(0));
  const at::Tensor kept = gradient.detach();
  gradient.set_data(torch::zeros({6, 5}));
  EXPECT_TRUE(contains(error_of([&] { of.step.step(x, y); }), "the gradient of 'p0'"));
  gradient.set_data(kept);
  of.step.step(x, y);
  EXPECT_FALSE(torch::equal(bias, of.parameter(1)));
}

TEST(CompiledMemory, RefusesBatchesThatTheGraphHasNot) {
  torch::manual_seed(48);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  test::FunctionNet net(parameters);
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 3});
  const auto graph = graph::capture(
      net, [&](const Tensors& given) { return c10::IValue(two_layers(net.parameters_in_order, given)); }, {x},
      {.batch_dims = {-1}, .far_sizes = false});
  amp::FusedOptimizer optimizer(net.parameters_in_order, amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  std::vector<float> result(static_cast<size_t>(step.result_size(1)));
  EXPECT_EQ(result.size(), 21U);
  step.step(x.data_ptr<float>(), y.data_ptr<float>(), 1);
  step.step(x, y);
  step.forward(x.data_ptr<float>(), 1, result.data());
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"CompiledStep.step", [&] { step.step(x.data_ptr<float>(), y.data_ptr<float>(), 7); }},
      {"CompiledStep.forward", [&] { step.forward(x.data_ptr<float>(), 7, result.data()); }},
      {"CompiledStep.result_size", [&] { step.result_size(7); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string message = error_of(call);
    EXPECT_TRUE(contains(message, name) && contains(message, "expected a batch of 1") &&
                contains(message, "got 7"))
        << message;
  }
}

TEST(CompiledMemory, RefusesWeightsThatTheLossHasNot) {
  torch::manual_seed(49);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  const at::Tensor x = gaussian({7, 5}), weights = gaussian({7});
  CompiledFunction none(
      parameters, [](const Tensors&p, const Tensors&g) { return two_layers(p, g).square().mean(); }, {x},
      LossFunction::none()),
      one(
          parameters, [](const Tensors&p, const Tensors&g) { return two_layers(p, g).square().mean(); }, {x},
          LossFunction::mse()),
      classes(parameters, two_layers, {x}, LossFunction::weighted_cross_entropy());
  const at::Tensor before = none.parameter(0).detach().clone();
  EXPECT_TRUE(contains(error_of([&] { none.step.step({x}, {}, weights); }), "expected no weights"));
  EXPECT_TRUE(torch::equal(before, none.parameter(0).detach()));
  EXPECT_TRUE(
      contains(error_of([&] { one.step.step({x}, torch::zeros({}), weights); }), "expected no weights"));
  const at::Tensor targets = torch::randint(3, {7}, at::kLong);
  EXPECT_TRUE(
      contains(error_of([&] { classes.step.step({x}, targets, gaussian({6})); }), "weights of float32 [7]"));
  EXPECT_TRUE(
      contains(error_of([&] { classes.step.step({x}, targets, weights.to(at::kDouble)); }), "got double"));
}

TEST(CompiledMemory, NothingHasChangedWhereTheStateIsRefused) {
  torch::manual_seed(50);
  const Tensors parameters = {gaussian({6, 5}), gaussian({6}), gaussian({3, 6})};
  const at::Tensor x = gaussian({7, 5}), y = gaussian({7, 3});
  const auto bad_state = [](const char* of) {
    auto state = std::make_unique<amp::FusedParamState>();
    (std::string(of) == "momentum" ? state->momentum_buffer : state->exp_avg) = torch::zeros({2});
    return state;
  };
  const auto key = [](CompiledFunction& of, size_t i) { return of.parameter(i).unsafeGetTensorImpl(); };
  // The first step fills the momentum with the gradient, although the same step was refused for the last parameter before.
  const amp::SgdRule momentum{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  CompiledFunction refused(parameters, two_layers, {x}, LossFunction::mse(), momentum),
      plain(parameters, two_layers, {x}, LossFunction::mse(), momentum);
  refused.optimizer.state()[key(refused, 2)] = bad_state("momentum");
  EXPECT_FALSE(error_of([&] { refused.step.step(x, y); }).empty());
  EXPECT_EQ(refused.optimizer.state().count(key(refused, 0)), 0U)
      << "no state is made before all is looked at";
  EXPECT_TRUE(std::isnan(refused.step.loss()));
  refused.optimizer.state().erase(key(refused, 2));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(refused.step.step(x, y), plain.step.step(x, y));
  for (size_t p = 0; p < 3; ++p) EXPECT_TRUE(torch::equal(refused.parameter(p), plain.parameter(p)));
  // So does compile().
  CompiledFunction adam(parameters, two_layers, {x}, LossFunction::mse(), amp::AdamRule{});
  adam.optimizer.state().clear();
  adam.optimizer.state()[key(adam, 2)] = bad_state("exp_avg");
  EXPECT_FALSE(error_of([&] { compile(adam.graph, LossFunction::mse(), adam.optimizer); }).empty());
  EXPECT_EQ(adam.optimizer.state().size(), 1U);
}

TEST(CompiledMemory, ANormWhoseWeightIsItsBiasHasTheSameBitsOnAnyNumberOfThreads) {
  torch::manual_seed(51);
  const auto net = [](bool centered, bool reads_parameters) -> test::Function {
    return [=](const Tensors& p, const Tensors& x) {
      const at::Tensor h = reads_parameters ? torch::linear(x[0], p[1]) : x[0];
      const at::Tensor y = centered ? torch::layer_norm(h, {6}, p[0], p[0], 0.1)
                                    : torch::rms_norm(h, {6}, p[0], 0.1) * p[0] + p[0];
      return torch::tanh(y) * p[0];
    };
  };
  for (const bool centered : {false, true}) {
    for (const bool reads_parameters : {false, true}) {
      expect_gradients("shared", net(centered, reads_parameters), {gaussian({6}), gaussian({6, 6})},
                       {gaussian({40, 6})}, LossFunction::mse(), gaussian({40, 6}));
    }
  }
}

TEST(CompiledMemory, RefusesMoreDimensionsThanAMoveHas) {
  torch::manual_seed(52);
  const auto reversed = [](size_t dimensions) -> test::Function {
    return [=](const Tensors& p, const Tensors& x) {
      std::vector<int64_t> sizes(dimensions, 1), order;
      sizes.front() = -1;
      sizes[dimensions / 2] = 3;
      sizes.back() = 2;
      for (int64_t d = static_cast<int64_t>(dimensions); d-- > 1;) order.push_back(d);
      order.insert(order.begin(), 0);
      return torch::linear(x[0], p[0]).view(sizes).permute(order).flatten(1);
    };
  };
  const Tensors parameters = {gaussian({6, 5})};
  expect_gradients("16", reversed(16), parameters, {gaussian({4, 5})}, LossFunction::mse(), gaussian({4, 6}));
  const std::string moved = refusal_of(reversed(17), parameters, {gaussian({4, 5})}, LossFunction::mse());
  EXPECT_TRUE(contains(moved, "at most 16 dimensions, got 17 at 'permute'")) << moved;
  const std::string repeated = refusal_of(
      [](const Tensors& p, const Tensors& x) {
        std::vector<int64_t> sizes(17, 1);
        sizes[14] = 3;
        sizes[15] = sizes[16] = 2;
        return torch::linear(x[0], p[0]).mean() + p[1].expand(sizes).mean();
      },
      {gaussian({6, 5}), gaussian({3, 1, 1})}, {gaussian({4, 5})}, LossFunction::none());
  EXPECT_TRUE(contains(repeated, "at most 16 dimensions, got 17 at 'expand'")) << repeated;
}

TEST(CompiledMemory, GradientsOfSmallDivisorsAreFiniteWhereLibTorchsAre) {
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    return torch::div(x[0] * p[0], x[1] * p[1]).sum();
  };
  const Tensors parameters = {torch::ones({1}), torch::ones({1})},
                inputs = {torch::zeros({3, 2}), torch::full({3, 2}, 1e-39)};
  CompiledFunction compiled(parameters, net, inputs, LossFunction::none(), amp::SgdRule{.lr = 0});
  compiled.step.step(inputs);
  EXPECT_EQ(compiled.step.gradient(compiled.parameter(1)).item<float>(), 0)
      << "-g (y / b), with y = 0; g / b would be infinite";
}

TEST(CompiledMemory, LossesOfNanHaveLibTorchsGradients) {
  torch::manual_seed(54);
  const Tensors parameters = {gaussian({5, 3}), gaussian({5})};
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    return torch::linear(x[0], p[0], p[1]);
  };
  const at::Tensor x = gaussian({4, 3}), y = gaussian({4, 5});
  y[2][1] = std::numeric_limits<float>::quiet_NaN();
  for (const LossFunction& loss :
       {LossFunction::l1(), LossFunction::smooth_l1(), LossFunction::huber(), LossFunction::mse()}) {
    CompiledFunction compiled(parameters, net, {x}, loss, amp::SgdRule{.lr = 0});
    test::torch_loss(loss, net(compiled.net.parameters_in_order, {x}), y).backward();
    const at::Tensor expected = compiled.parameter(1).grad();
    EXPECT_TRUE(std::isnan(compiled.step.step(x, y)));
    const at::Tensor made = compiled.step.gradient(compiled.parameter(1));
    EXPECT_TRUE(torch::allclose(made, expected, 1e-5, 1e-7, true))
        << "loss " << static_cast<int>(loss.kind) << ": " << made << expected;
  }
}

/// Batch norm in train mode and something else over the same running statistics.
struct RunningStatistics : test::FunctionNet {
  RunningStatistics()
      : FunctionNet({gaussian({4, 4})}),
        mean(register_buffer("mean", torch::zeros({4}))),
        variance(register_buffer("variance", torch::ones({4}))) {}
  at::Tensor norm(const at::Tensor& x, bool training) const {
    return torch::batch_norm(x, {}, {}, mean, variance, training, 0.3, 1e-5, false);
  }
  at::Tensor product(const at::Tensor& x) const { return torch::linear(x, parameters_in_order[0]); }
  at::Tensor mean, variance;
};

TEST(CompiledMemory, RefusesReadersOfRunningStatisticsThatMoveBeforeThem) {
  torch::manual_seed(53);
  using Net = RunningStatistics;
  const at::Tensor x = gaussian({5, 4}), y = gaussian({5, 4});
  const auto step = [&](const std::function<at::Tensor(const Net&, const at::Tensor&)>& function) {
    Net net;
    const auto graph =
        graph::capture(net, [&](const Tensors& given) { return c10::IValue(function(net, given[0])); }, {x},
                       {.far_sizes = false});
    graph->train();
    amp::FusedOptimizer optimizer(net.parameters_in_order, amp::SgdRule{.lr = 0.1});
    compile(graph, LossFunction::mse(), optimizer).step(x, y);
  };
  const auto refusal = [&](const auto& function) { return error_of([&] { step(function); }); };
  const std::string after =
      refusal([](const Net& n, const at::Tensor& g) { return n.norm(n.product(n.norm(g, true)), false); });
  EXPECT_TRUE(contains(after, "running statistics 'mean'")) << after;
  EXPECT_TRUE(contains(after, "'batch_norm_1'")) << after;
  EXPECT_TRUE(contains(
      refusal([](const Net& n, const at::Tensor& g) { return n.product(n.norm(g, true)) + n.variance; }),
      "running statistics 'variance'"));
  EXPECT_TRUE(contains(refusal([](const Net& n, const at::Tensor& g) {
                         const at::Tensor view = n.mean.view({1, 4});
                         return n.product(n.norm(g, true)) - view;
                       }),
                       "running statistics 'mean'"));
  EXPECT_NO_THROW(
      step([](const Net& n, const at::Tensor& g) { return n.norm(n.product(n.norm(g, true)), true); }));
  EXPECT_NO_THROW(
      step([](const Net& n, const at::Tensor& g) { return n.norm(n.product(n.norm(g, false)), true); }));
}

}  // namespace
}  // namespace ulp::train
