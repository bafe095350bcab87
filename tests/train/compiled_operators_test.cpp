// The operators and losses of a compiled step have the gradients that LibTorch has in float64.
#include "compiled_support.h"
#include "error_of.h"
#include "ulp/amp/optimizer/fused_step.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::normal;
using test::Tensors;

TEST(CompiledOperators, LinearLayersWithAndWithoutBias) {
  torch::manual_seed(1);
  for (const int64_t batch : {1, 2, 7, 64}) {
    for (const int64_t width : {1, 3, 8, 33}) {
      const Tensors parameters = {normal({width, 5}), normal({width}), normal({4, width})};
      const test::Function two = [](const Tensors& p, const Tensors& x) {
        return torch::linear(torch::relu(torch::linear(x[0], p[0], p[1])), p[2]);
      };
      expect_gradients("two layers", two, parameters, {normal({batch, 5})}, LossFunction::mse(),
                       normal({batch, 4}));
    }
  }
}

TEST(CompiledOperators, FunctionsNumberByNumber) {
  torch::manual_seed(2);
  namespace F = torch::nn::functional;
  const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> functions = {
      {"relu", [](const at::Tensor& x) { return torch::relu(x); }},
      {"leaky_relu", [](const at::Tensor& x) { return torch::leaky_relu(x, 0.2); }},
      {"leaky_relu above 1", [](const at::Tensor& x) { return torch::leaky_relu(x, 1.5); }},
      {"tanh", [](const at::Tensor& x) { return torch::tanh(x); }},
      {"sigmoid", [](const at::Tensor& x) { return torch::sigmoid(x); }},
      {"gelu", [](const at::Tensor& x) { return torch::gelu(x); }},
      {"gelu tanh", [](const at::Tensor& x) { return torch::gelu(x, "tanh"); }},
      {"silu", [](const at::Tensor& x) { return torch::silu(x); }},
      {"elu", [](const at::Tensor& x) { return torch::elu(x, 0.7); }},
      {"selu", [](const at::Tensor& x) { return torch::elu(x, 1.6732632423543772, 1.0507009873554805); }},
      {"softplus", [](const at::Tensor& x) { return F::softplus(x); }},
      {"softplus 2",
       [](const at::Tensor& x) { return F::softplus(x, F::SoftplusFuncOptions().beta(2).threshold(1)); }},
      {"exp", [](const at::Tensor& x) { return torch::exp(x * 0.5); }},
      {"log", [](const at::Tensor& x) { return torch::log(x.square() + 1.0); }},
      {"abs", [](const at::Tensor& x) { return torch::abs(x); }},
      {"clamp", [](const at::Tensor& x) { return torch::clamp(x, -0.5, 0.75); }},
      {"clamp below", [](const at::Tensor& x) { return torch::clamp(x, -0.5); }},
      {"sqrt", [](const at::Tensor& x) { return torch::sqrt(x.square() + 0.5); }},
      {"quotient", [](const at::Tensor& x) { return x / (x.square() + 1.0); }},
      {"row sums", [](const at::Tensor& x) { return x - x.mean(-1, true) + x.sum(-1, true) * 0.1; }},
      {"row norm", [](const at::Tensor& x) { return x / torch::sqrt(x.square().sum(1).unsqueeze(1) + 0.1); }},
      {"all", [](const at::Tensor& x) { return x * x.mean() + x.sum(); }},
      {"relu6", [](const at::Tensor& x) { return torch::relu6(x * 5); }},
      {"hardsigmoid", [](const at::Tensor& x) { return torch::hardsigmoid(x * 2); }},
      {"hardswish", [](const at::Tensor& x) { return torch::hardswish(x * 2); }},
      {"hardtanh", [](const at::Tensor& x) { return torch::hardtanh(x); }},
      {"numbers", [](const at::Tensor& x) { return (1.0 - x) * 0.5 + (x / 3.0 - 2.0) - (-x).pow(2); }},
      {"twice", [](const at::Tensor& x) { return x * torch::sigmoid(x) + x; }},
      {"smaller", [](const at::Tensor& x) { return torch::minimum(x, x * x) + torch::maximum(x, x * 0.5); }},
      {"softmax", [](const at::Tensor& x) { return torch::softmax(x, -1); }},
      {"log_softmax", [](const at::Tensor& x) { return torch::log_softmax(x, 1); }},
      {"difference", [](const at::Tensor& x) { return torch::sub(torch::tanh(x), x, 0.25); }},
      {"detach", [](const at::Tensor& x) { return x * torch::sigmoid(x).detach() + x; }},
  };
  for (const auto& [name, function] : functions) {
    const Tensors parameters = {normal({9, 6}), normal({9}), normal({5, 9})};
    const test::Function net = [&, f = function](const Tensors& p, const Tensors& x) {
      return torch::linear(f(torch::linear(x[0], p[0], p[1])), p[2]);
    };
    expect_gradients(name, net, parameters, {normal({13, 6})}, LossFunction::mse(), normal({13, 5}));
  }
}

TEST(CompiledOperators, SumsOfAnyDimensionsNormsAndChoices) {
  torch::manual_seed(41);
  const at::Tensor tokens = torch::randint(4, {6, 5}, at::kLong), x = normal({6, 5, 7});
  const auto expect = [&](const std::string& name, const test::Function& function) {
    expect_gradients(name, function, {normal({8, 7}), normal({8}), normal({2, 8})}, {x, tokens},
                     LossFunction::mse(), normal({6, 2}), 64);
  };
  const auto hidden = [](const Tensors& p, const Tensors& given) { return torch::linear(given[0], p[0]); };
  expect("sum of the middle", [&](const Tensors& p, const Tensors& g) {
    return torch::linear(torch::tanh(hidden(p, g)).sum(1), p[2]);
  });
  expect("mean of the middle, kept", [&](const Tensors& p, const Tensors& g) {
    const at::Tensor h = torch::tanh(hidden(p, g));
    return torch::linear((h - h.mean(1, true)).square().mean(std::vector<int64_t>{1}), p[2]);
  });
  expect("two dimensions", [&](const Tensors& p, const Tensors& g) {
    const at::Tensor h = torch::tanh(hidden(p, g)).view({-1, 5, 2, 4});
    return h.sum(std::vector<int64_t>{1, 3}) +
           torch::linear(h.mean(std::vector<int64_t>{1}).flatten(1), p[2]);
  });
  expect("rms_norm", [&](const Tensors& p, const Tensors& g) {
    const at::Tensor h = torch::rms_norm(hidden(p, g), {8}, p[1], 1e-2);
    return torch::linear(torch::rms_norm(h, {8}, {}, 1e-3).select(1, 2), p[2]);
  });
  expect("texts without padding", [&](const Tensors& p, const Tensors& g) {
    const at::Tensor padding = g[1].eq(1).unsqueeze(2);
    const at::Tensor sums = hidden(p, g).masked_fill(padding, 0).sum(1);
    return torch::linear(sums / padding.logical_not().sum(1).clamp_min(1), p[2]);
  });
  expect("choices", [&](const Tensors& p, const Tensors& g) {
    const at::Tensor h = hidden(p, g), some = g[1].ge(2).unsqueeze(2);
    const at::Tensor y =
        torch::where(some, torch::tanh(h), h * 0.5) + h.masked_fill(some.logical_not(), -0.25);
    return torch::linear(y.select(1, 0), p[2]);
  });
}

TEST(CompiledOperators, RefusesMoreTrueOnesThanFloatsCount) {
  test::FunctionNet net({normal({1})});
  const auto graph =
      test::capture_function(net,
                             [](const Tensors& p, const Tensors& g) {
                               return (p[0] * g[1].sum() / g[0].ne(0).sum().clamp_min(1)).sum();
                             },
                             {torch::ones({2, 1 << 14}, at::kLong), normal({2, 1})});
  amp::FusedOptimizer sgd(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep step = compile(graph, LossFunction::none(), sgd);
  EXPECT_TRUE(std::isfinite(step.step({torch::ones({3, 1 << 14}, at::kLong), normal({3, 1})})));
  const std::string message = error_of([&] {
    step.step({torch::ones({1025, 1 << 14}, at::kLong), normal({1025, 1})});
  });
  EXPECT_TRUE(contains(message, "counts of at most 16777216")) << message;
}

TEST(CompiledOperators, ClassesOfTokens) {
  torch::manual_seed(42);
  test::FunctionNet net({normal({9, 6})}), other({net.parameters_in_order[0]});
  const test::Function function = [](const Tensors& p, const Tensors& x) {
    return torch::linear(x[0], p[0]);
  };
  const at::Tensor x = normal({4, 5, 6}), classes = torch::randint(9, {4, 5}, at::kLong);
  const auto graph = test::capture_function(net, function, {x});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  EXPECT_TRUE(contains(error_of([&] { compile(graph, LossFunction::cross_entropy(), optimizer); }),
                       "token_cross_entropy"));
  CompiledStep step = compile(graph, LossFunction::token_cross_entropy(), optimizer);
  const at::Tensor wide = net.parameters_in_order[0].detach().to(torch::kDouble).requires_grad_();
  const at::Tensor exact =
      torch::cross_entropy_loss(torch::linear(x.to(torch::kDouble), wide).flatten(0, 1), classes.flatten());
  exact.backward();
  EXPECT_NEAR(double{step.step({x}, classes)}, exact.item<double>(), 0x1p-18);
  const at::Tensor made = step.gradient(graph->parameters()[0]);
  EXPECT_LE((made - wide.grad()).abs().max().item<double>(),
            0x1p-18 * wide.grad().abs().max().item<double>());
  EXPECT_TRUE(contains(error_of([&] { step.step(x, classes.flatten()); }), "targets"));
}

TEST(CompiledOperators, Losses) {
  torch::manual_seed(3);
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::tanh(torch::linear(x[0], p[0], p[1])), p[2]);
  };
  const Tensors parameters = {normal({9, 6}), normal({9}), normal({5, 9})};
  for (const LossFunction& loss : {LossFunction::mse(), LossFunction::l1(), LossFunction::smooth_l1(0.5),
                                   LossFunction::huber(0.75), LossFunction::bce_logits()}) {
    const std::string name = "loss " + std::to_string(static_cast<int>(loss.kind));
    const at::Tensor targets =
        loss.kind == LossFunction::Kind::bce_logits ? torch::rand({13, 5}) : normal({13, 5}) * 3;
    expect_gradients(name, net, parameters, {normal({13, 6})}, loss, targets);
    expect_gradients(name + " sum", net, parameters, {normal({13, 6})}, loss.sum(), targets);
  }
  const at::Tensor classes = torch::randint(5, {13}, at::kLong);
  expect_gradients("classes", net, parameters, {normal({13, 6})}, LossFunction::cross_entropy(), classes);
  expect_gradients("classes sum", net, parameters, {normal({13, 6})}, LossFunction::cross_entropy().sum(),
                   classes);
}

TEST(CompiledOperators, LayerNormResidualsConcatAndColumns) {
  torch::manual_seed(4);
  const Tensors parameters = {normal({8, 6}), normal({8}), normal({8, 8}), normal({8}),
                              normal({8}),    normal({8}), normal({8, 8}), normal({3, 19})};
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    at::Tensor h = torch::linear(x[0], p[0], p[1]);
    h = h + torch::gelu(torch::linear(torch::layer_norm(h, {8}, p[4], p[5]), p[2], p[3]));
    const Tensors parts = torch::linear(h, p[6]).chunk(2, -1);
    const at::Tensor gated = parts[0] * torch::sigmoid(parts[1]);
    const at::Tensor joined = torch::cat({h, gated, x[1], h.slice(1, 2, 5), h.select(1, 7).unsqueeze(1)}, -1);
    return torch::linear(torch::layer_norm(joined, {19}), p[7]);
  };
  expect_gradients("block", net, parameters, {normal({11, 6}), normal({11, 3})}, LossFunction::mse(),
                   normal({11, 3}));
}

TEST(CompiledOperators, SharedWeightsReshapesAndParametersAsTensors) {
  torch::manual_seed(5);
  const Tensors parameters = {normal({6, 6}), normal({6}), normal({2, 24}), normal({4, 6})};
  const test::Function net = [](const Tensors& p, const Tensors& x) {
    at::Tensor h = torch::tanh(torch::linear(x[0], p[0], p[1]));  // [batch, 4, 6]
    h = torch::tanh(torch::linear(h, p[0], p[1]));                // the same weights again
    h = torch::layer_norm(h, {6}, p[1]);
    return torch::linear(h.flatten(1), p[2]).view({-1}) + torch::linear(x[0].flatten(1), p[2]).reshape({-1});
  };
  expect_gradients("shared", net, parameters, {normal({5, 4, 6})}, LossFunction::mse(), normal({10}));
  const test::Function scaled = [](const Tensors& p, const Tensors&) { return (p[3] * p[3] + p[3]).mean(); };
  expect_gradients("parameters", scaled, parameters, {normal({5, 4, 6})}, LossFunction::none());
}

TEST(CompiledOperators, LossesThatTheGraphComputes) {
  torch::manual_seed(6);
  const Tensors parameters = {normal({16, 6}), normal({16}), normal({5, 16}), normal({1, 16})};
  // A policy gradient with a value function and an entropy bonus.
  const test::Function actor_critic = [](const Tensors& p, const Tensors& x) {
    const at::Tensor h = torch::tanh(torch::linear(x[0], p[0], p[1]));
    const at::Tensor log_probabilities = torch::log_softmax(torch::linear(h, p[2]), -1);
    const at::Tensor chosen = log_probabilities.gather(1, x[1].unsqueeze(1)).squeeze(1);
    const at::Tensor value = torch::linear(h, p[3]).squeeze(-1);
    const at::Tensor entropy = (log_probabilities.exp() * log_probabilities).sum();
    return -(chosen * x[2]).mean() + torch::mse_loss(value, x[3]) * 0.5 + entropy * 0.01;
  };
  expect_gradients("actor and critic", actor_critic, parameters,
                   {normal({12, 6}), torch::randint(5, {12}, at::kLong), normal({12}), normal({12})},
                   LossFunction::none());
  // Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7.
  const test::Function clipped = [](const Tensors& p, const Tensors& x) {
    const at::Tensor h = torch::tanh(torch::linear(x[0], p[0], p[1]));
    const at::Tensor chosen = torch::log_softmax(torch::linear(h, p[2]), -1).gather(1, x[1]);
    const at::Tensor ratio = torch::exp(chosen - x[2]);
    return -torch::min(ratio * x[3], torch::clamp(ratio, 0.8, 1.2) * x[3]).mean();
  };
  expect_gradients(
      "clipped ratio", clipped, parameters,
      {normal({12, 6}), torch::randint(5, {12, 1}, at::kLong), normal({12, 1}) * 0.1 - 1.6, normal({12, 1})},
      LossFunction::none());
}

TEST(CompiledOperators, ParametersThatAreBroadcast) {
  torch::manual_seed(12);
  const Tensors parameters = {normal({16, 6}), normal({16}), normal({3, 16}), normal({3}) * 0.3, normal({1})};
  // A Gaussian policy with standard deviations of its own, as Schulman et al. 2017 have it, and a learned temperature.
  const test::Function gaussian = [](const Tensors& p, const Tensors& x) {
    const at::Tensor mean = torch::linear(torch::tanh(torch::linear(x[0], p[0], p[1])), p[2]) * p[4];
    const at::Tensor z = (x[1] - mean) * torch::exp(-p[3]);
    const at::Tensor log_probability = (z.square() * -0.5 - p[3]).sum(-1);
    return -(log_probability * x[2]).mean();
  };
  expect_gradients("gaussian", gaussian, parameters, {normal({12, 6}), normal({12, 3}), normal({12})},
                   LossFunction::none());
  const test::Function by_class = [](const Tensors& p, const Tensors& x) {
    return torch::cross_entropy_loss(torch::linear(torch::tanh(torch::linear(x[0], p[0], p[1])), p[2]), x[1]);
  };
  expect_gradients("cross entropy of the graph", by_class, {parameters.begin(), parameters.begin() + 3},
                   {normal({12, 6}), torch::randint(3, {12}, at::kLong)}, LossFunction::none());
}

}  // namespace
}  // namespace ulp::train
