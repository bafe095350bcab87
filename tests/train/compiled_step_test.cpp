// A compiled step does what LibTorch's forward, backward and the fused optimizer do.
#include "compiled_support.h"
#include "error_of.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/prune/masks/apply_mask.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::normal;
using test::Tensors;

struct MlpNet : torch::nn::Module {
  explicit MlpNet(std::vector<int64_t> widths) {
    for (size_t i = 0; i + 1 < widths.size(); ++i)
      layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(widths[i], widths[i + 1])));
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      if (i + 1 < layers.size()) x = torch::relu(x);
    }
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

std::shared_ptr<MlpNet> make_mlp(uint64_t seed, const std::vector<int64_t>& widths = {8, 32, 32, 4}) {
  torch::manual_seed(seed);
  return std::make_shared<MlpNet>(widths);
}

std::shared_ptr<graph::GraphModule> captured_mlp(uint64_t seed, int64_t batch,
                                                 const std::vector<int64_t>& widths = {8, 32, 32, 4}) {
  auto model = make_mlp(seed, widths);
  const auto graph = capture(model, {normal({batch, widths.front()})}, {.far_sizes = false});
  graph->train();
  return graph;
}

TEST(CompiledStep, AccumulatesBatchesAndDrawsDropoutForEach) {
  const auto graph = captured_mlp(51, 6), other = captured_mlp(51, 6);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const Tensors x = {normal({6, 8}), normal({2, 8}), normal({6, 8})},
                y = {normal({6, 4}), normal({2, 4}), normal({6, 4})};
  for (size_t i = 0; i < 3; ++i) {
    const float loss = step.accumulate({x[i]}, y[i], 1.0 / 3);
    const at::Tensor expected = torch::mse_loss(other->forward(x[i]), y[i]);
    (expected / 3).backward();
    EXPECT_NEAR(loss, expected.item<float>(), 0x1p-18F);
    if (i == 0) EXPECT_TRUE(contains(error_of([&] { step.accumulate({x[1]}, y[0], 1.0 / 3); }), "targets"));
  }
  for (size_t p = 0; p < 6; ++p) {
    const at::Tensor made = step.gradient(graph->parameters()[p]), expected = other->parameters()[p].grad();
    EXPECT_LE((made - expected).abs().max().item<float>(), 0x1p-18F * expected.abs().max().item<float>());
  }
  const at::Tensor before = graph->parameters()[0].clone(),
                   gradient = step.gradient(graph->parameters()[0]).clone();
  step.apply();
  EXPECT_TRUE(torch::allclose(graph->parameters()[0], before - 0.1 * gradient, 1e-6, 1e-7));
  EXPECT_TRUE(contains(error_of([&] { step.apply(); }), "gradients"));

  // Twice the same batch under dropout: other numbers are dropped, and the same ones in another run.
  test::FunctionNet net({normal({30, 6}), normal({1, 30})});
  const auto drops = test::capture_function(net,
                                            [](const Tensors& p, const Tensors& g) {
                                              return torch::linear(
                                                  torch::dropout(torch::linear(g[0], p[0]), 0.5, true), p[1]);
                                            },
                                            {normal({4, 6})});
  const at::Tensor input = normal({4, 6}), target = normal({4, 1});
  Tensors sums;
  for (int run = 0; run < 2; ++run) {
    amp::FusedOptimizer sgd(drops->parameters(), amp::SgdRule{.lr = 0});
    CompiledStep dropped = compile(drops, LossFunction::mse(), sgd, {.dropout_seed = 3});
    dropped.accumulate({input}, target, 1);
    const at::Tensor once = dropped.gradient(drops->parameters()[0]).clone();
    dropped.accumulate({input}, target, 1);
    sums.push_back(dropped.gradient(drops->parameters()[0]).clone());
    EXPECT_FALSE(torch::allclose(sums.back(), once * 2, 1e-3));
  }
  EXPECT_TRUE(torch::equal(sums[0], sums[1]));
}

TEST(CompiledStep, ForgetsGradientsAndDrawsForABatchAfterBackward) {
  test::FunctionNet net({normal({30, 6}), normal({1, 30})});
  const auto graph = test::capture_function(net,
                                            [](const Tensors& p, const Tensors& g) {
                                              return torch::linear(
                                                  torch::dropout(torch::linear(g[0], p[0]), 0.5, true), p[1]);
                                            },
                                            {normal({4, 6})});
  amp::FusedOptimizer sgd(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep step = compile(graph, LossFunction::mse(), sgd, {.dropout_seed = 3});
  const at::Tensor x = normal({4, 6}), y = normal({4, 1});
  const auto gradient = [&] { return step.gradient(graph->parameters()[0]).clone(); };
  step.backward({x}, y);
  const at::Tensor first = gradient();
  step.accumulate({x}, y, 1);
  EXPECT_FALSE(torch::allclose(gradient(), first * 2, 1e-3)) << "other numbers are dropped";
  step.zero_grad();
  EXPECT_TRUE(contains(error_of([&] { step.apply(); }), "gradients"));
  step.accumulate({x}, y, 1);
  EXPECT_TRUE(torch::equal(gradient(), first)) << "nothing is left of the batches before";
}

TEST(CompiledStep, WeightsOfRowsAreThoseOfAPolicyGradient) {
  const auto graph = captured_mlp(14, 6), other = captured_mlp(14, 6);
  const amp::UpdateRule rule = amp::SgdRule{.lr = 0.1};
  amp::FusedOptimizer optimizer(graph->parameters(), rule), same(other->parameters(), rule);
  CompiledStep step = compile(graph, LossFunction::weighted_cross_entropy(), optimizer);
  const at::Tensor x = normal({6, 8}), actions = torch::randint(4, {6}, at::kLong), advantages = normal({6});
  const at::Tensor each = torch::cross_entropy_loss(other->forward(x), actions, {}, at::Reduction::None);
  const at::Tensor loss = (each * advantages).mean();
  loss.backward();
  EXPECT_NEAR(step.step({x}, actions, advantages), loss.item<float>(), 0x1p-18);
  for (size_t p = 0; p < 6; ++p) {
    const at::Tensor expected = other->parameters()[p].grad();
    const float error = (step.gradient(graph->parameters()[p]) - expected).abs().max().item<float>();
    EXPECT_LE(error, 0x1p-18F * expected.abs().max().item<float>());
  }
  EXPECT_TRUE(contains(error_of([&] { step.step(x, actions); }), "weights"));
  const float raw = step.step(x.const_data_ptr<float>(), actions.const_data_ptr<int64_t>(),
                              advantages.const_data_ptr<float>(), 6);
  EXPECT_LT(raw, loss.item<float>());
}

TEST(CompiledStep, UpdatesAreThoseOfTheFusedOptimizer) {
  const std::vector<amp::UpdateRule> rules = {
      amp::SgdRule{.lr = 0.1},
      amp::SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01},
      amp::SgdRule{.lr = 0.1, .momentum = 0.9, .nesterov = true},
      amp::AdamRule{.lr = 0.01, .weight_decay = 0.1}, amp::AdamWRule{.lr = 0.01}};
  for (const amp::UpdateRule& rule : rules) {
    for (const bool clips : {false, true}) {
      SCOPED_TRACE(std::string(amp::name_of(rule)) + (clips ? " clipped" : ""));
      const auto graph = captured_mlp(1, 16), other = captured_mlp(1, 16);
      amp::FusedOptimizer optimizer(graph->parameters(), rule), same(other->parameters(), rule);
      CompileOptions options;
      if (clips) options.max_norm = 0.5;
      CompiledStep step = compile(graph, LossFunction::mse(), optimizer, options);
      for (int i = 0; i < 6; ++i) {
        if (i == 3) {  // a schedule
          for (amp::FusedOptimizer* one : {&optimizer, &same}) one->param_groups()[0].options().set_lr(0.05);
        }
        step.step(normal({16, 8}), normal({16, 4}));
        const Tensors trained = graph->parameters(), expected = other->parameters();
        for (size_t p = 0; p < trained.size(); ++p)
          expected[p].mutable_grad() = step.gradient(trained[p]).clone();
        amp::FusedStepOptions fused;
        if (clips) fused.max_norm = 0.5;
        const amp::FusedStepResult done = amp::fused_step(same, nullptr, fused);
        EXPECT_EQ(step.update().clip_factor, done.clip_factor);
        EXPECT_EQ(step.update().result, done.result);
        for (size_t p = 0; p < trained.size(); ++p)
          ASSERT_TRUE(torch::equal(trained[p], expected[p])) << i << ' ' << p;
      }
      const auto& state = static_cast<const amp::FusedParamState&>(
          *optimizer.state().at(graph->parameters()[0].unsafeGetTensorImpl()));
      EXPECT_EQ(state.step, 6);
    }
  }
}

TEST(CompiledStep, LosesWhatLibTorchLosesFor300Steps) {
  const auto model = make_mlp(3);
  const auto graph = captured_mlp(3, 32);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-2));
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{.lr = 1e-2});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  torch::manual_seed(4);
  const at::Tensor teacher = normal({4, 8});
  double first = 0, last = 0;
  for (int i = 0; i < 300; ++i) {
    const at::Tensor x = normal({32, 8}), y = torch::tanh(torch::linear(x, teacher));
    adam.zero_grad();
    const at::Tensor loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    adam.step();
    const auto made = double{step.step(x, y)};
    // Rounding grows along a run; a wrong gradient or update would part the two in a few steps.
    ASSERT_NEAR(made, loss.item<double>(), 1e-3 * loss.item<double>() + 1e-6) << i;
    (i == 0 ? first : last) = made;
  }
  EXPECT_LT(last, 0.2 * first);
}

TEST(CompiledStep, TwoRunsHaveTheSameBits) {
  std::vector<Tensors> runs;
  for (int run = 0; run < 2; ++run) {
    const auto graph = captured_mlp(5, 16);
    amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
    CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
    torch::manual_seed(6);
    for (int i = 0; i < 20; ++i) step.step(normal({16, 8}), normal({16, 4}));
    runs.push_back(graph->parameters());
  }
  for (size_t p = 0; p < runs[0].size(); ++p) EXPECT_TRUE(torch::equal(runs[0][p], runs[1][p]));
}

TEST(CompiledStep, TakesAnyBatchAndRawMemory) {
  const auto graph = captured_mlp(7, 4), other = captured_mlp(7, 4);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{}),
      same(other->parameters(), amp::AdamRule{});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer),
               raw = compile(other, LossFunction::mse(), same, {.max_batch = 40});
  const int64_t room = raw.arena_bytes();
  EXPECT_GT(room, 0);
  for (const int64_t batch : {4, 1, 33, 2, 40}) {
    const at::Tensor x = normal({batch, 8}), y = normal({batch, 4});
    EXPECT_EQ(step.step(x, y), raw.step(x.data_ptr<float>(), y.data_ptr<float>(), batch));
    EXPECT_EQ(raw.arena_bytes(), room);
    const at::Tensor before = graph->forward(x);
    std::vector<float> result(static_cast<size_t>(step.result_size(batch)));
    ASSERT_EQ(result.size(), static_cast<size_t>(before.numel()));
    step.forward(x.data_ptr<float>(), batch, result.data());
    const at::Tensor made = torch::from_blob(result.data(), before.sizes().vec());
    EXPECT_LE((made - before).abs().max().item<float>(),
              std::ldexp(96.0F, -24) * before.abs().max().item<float>() * 4);
  }
  for (size_t p = 0; p < graph->parameters().size(); ++p)
    EXPECT_TRUE(torch::equal(graph->parameters()[p], other->parameters()[p]));
}

TEST(CompiledStep, SeesWhatTheUserChangesBetweenSteps) {
  const auto graph = captured_mlp(8, 4);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const at::Tensor x = normal({4, 8}), y = normal({4, 4});
  step.step(x, y);
  at::Tensor weight = graph->parameters()[0];
  const auto version = weight._version();
  {
    const torch::NoGradGuard no_grad;
    weight.set_data(normal({32, 8}));
  }
  const float expected = torch::mse_loss(graph->forward(x), y).item<float>();
  EXPECT_NEAR(step.step(x, y), expected, 1e-4 * std::fabs(expected));
  EXPECT_GT(weight._version(), version);
  // A mask that is set later holds its elements.
  optimizer.set_mask(weight, torch::zeros({32}, torch::kByte));
  const at::Tensor held = weight.detach().clone();
  step.step(x, y);
  EXPECT_TRUE(torch::equal(weight.detach(), held));
}

TEST(CompiledStep, GoesOnFromAStateThatIsPutBack) {
  const auto graph = captured_mlp(15, 8);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const at::Tensor x = normal({8, 8}), y = normal({8, 4});
  for (int i = 0; i < 4; ++i) step.step(x, y);
  Tensors values;
  std::vector<amp::FusedParamState> states;
  for (const at::Tensor& parameter : graph->parameters()) {
    values.push_back(parameter.detach().clone());
    auto& kept = states.emplace_back(
        static_cast<const amp::FusedParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl())));
    kept.exp_avg = kept.exp_avg.clone();
    kept.exp_avg_sq = kept.exp_avg_sq.clone();
  }
  for (int i = 0; i < 3; ++i) step.step(x, y);
  Tensors expected;
  for (const at::Tensor& parameter : graph->parameters()) expected.push_back(parameter.detach().clone());
  {
    const torch::NoGradGuard no_grad;
    for (size_t p = 0; p < values.size(); ++p) {
      const at::Tensor parameter = graph->parameters()[p];
      at::Tensor(parameter).copy_(values[p]);
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::make_unique<amp::FusedParamState>(states[p]);
    }
  }
  for (int i = 0; i < 3; ++i) step.step(x, y);
  for (size_t p = 0; p < expected.size(); ++p) EXPECT_TRUE(torch::equal(graph->parameters()[p], expected[p]));
}

TEST(CompiledStep, DropoutIsDrawnAgainInTheBackwardPass) {
  torch::manual_seed(16);
  const Tensors parameters = {normal({40, 6}), normal({3, 40})}, inputs = {normal({50, 6})};
  const test::Function dropping = [](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::dropout(torch::tanh(torch::linear(x[0], p[0])), 0.25, true), p[1]);
  };
  test::FunctionNet net(parameters), hidden(parameters);
  const auto graph = test::capture_function(net, dropping, inputs);
  const auto of_hidden = test::capture_function(
      hidden,
      [](const Tensors& p, const Tensors& x) {
        return torch::dropout(torch::tanh(torch::linear(x[0], p[0])), 0.25, true);
      },
      inputs);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0}),
      other(of_hidden->parameters(), amp::SgdRule{.lr = 0});
  EXPECT_TRUE(contains(error_of([&] { compile(graph, LossFunction::mse(), optimizer); }), "dropout_seed"));
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer, {.dropout_seed = 7}),
               view = compile(of_hidden, LossFunction::mse(), other, {.dropout_seed = 7});
  const at::Tensor targets = normal({50, 3});
  at::Tensor before;
  for (int i = 0; i < 2; ++i) {
    // Both networks have their only dropout in the same place: what one shows is the other's.
    const at::Tensor drawn = torch::zeros({50, 40});
    view.forward(inputs[0].const_data_ptr<float>(), 50, drawn.data_ptr<float>());
    const at::Tensor mask = drawn.ne(0).to(torch::kFloat) / 0.75;
    EXPECT_NEAR(mask.mean().item<float>(), 1, 0.1);
    if (i > 0) EXPECT_FALSE(torch::equal(mask, before)) << "each step draws anew";
    before = mask;
    Tensors p;
    for (const at::Tensor& one : net.parameters_in_order) p.push_back(one.detach().clone().requires_grad_());
    const at::Tensor loss =
        torch::mse_loss(torch::linear(torch::tanh(torch::linear(inputs[0], p[0])) * mask, p[1]), targets);
    loss.backward();
    EXPECT_NEAR(step.step(inputs[0], targets), loss.item<float>(), 1e-5F * loss.item<float>());
    for (size_t k = 0; k < 2; ++k) {
      const at::Tensor gradient = step.gradient(net.parameters_in_order[k]);
      EXPECT_LE((gradient - p[k].grad()).abs().max().item<float>(),
                1e-5F * p[k].grad().abs().max().item<float>());
    }
    view.step(inputs[0], drawn);
  }
}

TEST(CompiledStep, OneParameterUnderTwoNames) {
  struct TiedNet : torch::nn::Module {
    TiedNet()
        : encoder(register_parameter("encoder", torch::randn({5, 5}))),
          decoder(register_parameter("decoder", encoder)) {}
    at::Tensor forward(const at::Tensor& x) {
      return torch::linear(torch::relu(torch::linear(x, encoder)), decoder);
    }
    at::Tensor encoder, decoder;
  };
  torch::manual_seed(17);
  auto model = std::make_shared<TiedNet>();
  const at::Tensor x = normal({6, 5}), y = normal({6, 5});
  const auto graph = capture(model, {x}, {.far_sizes = false});
  torch::mse_loss(model->forward(x), y).backward();
  const at::Tensor expected = model->encoder.grad().clone();
  amp::FusedOptimizer optimizer({model->encoder}, amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  step.step(x, y);
  const at::Tensor gradient = step.gradient(model->encoder);
  EXPECT_LE((gradient - expected).abs().max().item<float>(), 0x1p-18F * expected.abs().max().item<float>());
}

TEST(CompiledStep, TrainsOnlyWhatTheOptimizerHas) {
  const auto graph = captured_mlp(9, 4);
  const Tensors all = graph->parameters();
  const Tensors last = {all[4], all[5]};
  amp::FusedOptimizer optimizer(last, amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const at::Tensor first = all[0].detach().clone(), head = all[4].detach().clone();
  const size_t calls = step.instruction_count();
  step.step(normal({4, 8}), normal({4, 4}));
  EXPECT_TRUE(torch::equal(first, all[0].detach()));
  EXPECT_FALSE(torch::equal(head, all[4].detach()));
  EXPECT_LT(calls, 15U);  // no products for the gradients of frozen layers
  EXPECT_TRUE(
      contains(error_of([&] { step.gradient(all[0]); }), "expected a parameter that the step trains"));
}

TEST(CompiledStep, NonFiniteGradientsSkipTheUpdate) {
  const auto graph = captured_mlp(10, 4);
  amp::FusedOptimizer optimizer(graph->parameters(),
                                amp::SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer, {.check_finite = true});
  const at::Tensor before = graph->parameters()[0].detach().clone();
  step.step(torch::full({4, 8}, INFINITY), normal({4, 4}));
  EXPECT_EQ(step.update().result, amp::StepResult::skipped_nonfinite);
  EXPECT_TRUE(torch::equal(before, graph->parameters()[0].detach()));
  step.step(normal({4, 8}), normal({4, 4}));
  EXPECT_EQ(step.update().result, amp::StepResult::stepped);
  // The first step that is made fills the momentum with the gradient, as if none had been skipped.
  const auto& state = static_cast<const amp::FusedParamState&>(
      *optimizer.state().at(graph->parameters()[0].unsafeGetTensorImpl()));
  EXPECT_TRUE(torch::equal(state.momentum_buffer, step.gradient(graph->parameters()[0])));
}

TEST(CompiledStep, BackwardAndApplyAreAStep) {
  const auto one = captured_mlp(31, 16), two = captured_mlp(31, 16);
  amp::FusedOptimizer of_one(one->parameters(), amp::AdamRule{}), of_two(two->parameters(), amp::AdamRule{});
  CompiledStep step = compile(one, LossFunction::mse(), of_one, {.max_norm = 0.1});
  CompiledStep halves = compile(two, LossFunction::mse(), of_two, {.max_norm = 0.1});
  EXPECT_TRUE(contains(error_of([&] { halves.apply(); }), "expected backward() before"));
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = normal({16, 8}), y = normal({16, 4});
    const at::Tensor before = two->parameters()[0].detach().clone();
    EXPECT_EQ(step.step(x, y), halves.backward({x}, y));
    EXPECT_TRUE(torch::equal(two->parameters()[0], before));
    EXPECT_EQ(step.update().grad_norm, halves.apply().grad_norm);
    for (size_t p = 0; p < one->parameters().size(); ++p)
      EXPECT_TRUE(torch::equal(one->parameters()[p], two->parameters()[p]));
    EXPECT_TRUE(contains(error_of([&] { halves.apply(); }), "expected backward() before"));
  }
}

TEST(CompiledStep, MaskedParameters) {
  torch::manual_seed(32);
  const at::Tensor keep = torch::rand({33, 5}) < 0.5, row = torch::rand({33}) < 0.5;
  for (const bool dense : {false, true}) {
    const Tensors parameters = {normal({33, 5}), normal({33}), normal({4, 33})};
    const at::Tensor bits = prune::pack_mask(keep), row_bits = prune::pack_mask(row);
    const test::Function net = [=](const Tensors& p, const Tensors& x) {
      return torch::linear(torch::tanh(torch::linear(x[0], prune::apply_mask(p[0], bits, dense),
                                                     prune::apply_mask(p[1], row_bits, dense))),
                           p[2]);
    };
    expect_gradients("masked", net, parameters, {normal({20, 5})}, LossFunction::mse(), normal({20, 4}));
  }
}

TEST(CompiledStep, RefusesByNameWhatItDoesNotTake) {
  torch::manual_seed(11);
  const auto refusal = [](const test::Function& function, const Tensors& parameters, const Tensors& inputs,
                          const LossFunction& loss = LossFunction::mse()) {
    test::FunctionNet net(parameters);
    const auto graph = test::capture_function(net, function, inputs);
    amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
    const std::string message = error_of([&] { compile(graph, loss, optimizer); });
    EXPECT_TRUE(optimizer.state().empty()) << "nothing has changed";
    return message;
  };
  const Tensors weights = {normal({4, 6}), normal({4})};
  const Tensors x = {normal({3, 6})};
  const auto linear = [](const Tensors& p, const Tensors& given) { return torch::linear(given[0], p[0]); };
  std::string message =
      refusal([&](const Tensors& p, const Tensors& g) { return torch::cumsum(linear(p, g), 1); }, weights, x);
  EXPECT_TRUE(contains(message, "[train.compile]") && contains(message, "aten::cumsum") &&
              contains(message, "amp::fused_step and Trainer"))
      << message;
  message =
      refusal([&](const Tensors& p, const Tensors& g) { return torch::dropout(linear(p, g), 0.5, true); },
              weights, x);
  EXPECT_TRUE(contains(message, "dropout")) << message;
  message = refusal(linear, weights, x, LossFunction::none());
  EXPECT_TRUE(contains(message, "expected one number as the result")) << message;
  message = refusal([&](const Tensors& p, const Tensors& g) { return torch::softmax(linear(p, g), 0); },
                    weights, x);
  EXPECT_TRUE(contains(message, "expected the last dimension")) << message;
  message = refusal([](const Tensors&, const Tensors& g) { return g[0] * 2; }, weights, x);
  EXPECT_TRUE(contains(message, "depends on a parameter")) << message;
  message = refusal(
      [&](const Tensors& p, const Tensors& g) { return linear(p, g).to(torch::kDouble).to(torch::kFloat); },
      weights, x);
  EXPECT_TRUE(contains(message, "[train.compile]")) << message;

  const auto graph = captured_mlp(12, 4);
  graph->parameters()[0].register_hook([](const at::Tensor& g) { return g * 2; });
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  message = error_of([&] { compile(graph, LossFunction::mse(), optimizer); });
  EXPECT_TRUE(contains(message, "hook")) << message;
}

TEST(CompiledStep, RefusesStepsThatDoNotFit) {
  const auto graph = captured_mlp(13, 4);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const at::Tensor x = normal({4, 8}), y = normal({4, 4}), before = graph->parameters()[0].detach().clone();
  EXPECT_TRUE(contains(error_of([&] { step.step(normal({4, 7}), y); }), "[4, 8]"));
  EXPECT_TRUE(contains(error_of([&] { step.step(x, normal({4})); }), "'targets'"));
  EXPECT_TRUE(contains(error_of([&] { step.step(x.to(torch::kDouble), y); }), "double"));
  EXPECT_TRUE(contains(error_of([&] { step.step(normal({8, 4}).t(), y); }), "contiguous"));
  EXPECT_TRUE(contains(error_of([&] { step.step(x, at::Tensor()); }), "'targets'"));
  EXPECT_TRUE(
      contains(error_of([&] { step.step(x.data_ptr<float>(), y.data_ptr<float>(), 0); }), "at least 1"));
  const int64_t classes[] = {0, 1, 2, 3};
  EXPECT_TRUE(contains(error_of([&] { step.step(x.data_ptr<float>(), classes, 4); }), "cross_entropy"));
  EXPECT_TRUE(torch::equal(before, graph->parameters()[0].detach()));

  const auto other = captured_mlp(13, 4);
  amp::FusedOptimizer adam(other->parameters(), amp::AdamRule{});
  CompiledStep by_class = compile(other, LossFunction::cross_entropy(), adam);
  const std::string message = error_of([&] { by_class.step(x, torch::tensor({0, 1, 4, 2}, at::kLong)); });
  EXPECT_TRUE(contains(message, "[0, 4)") && contains(message, "got 4 in row 2")) << message;
  EXPECT_TRUE(torch::equal(before, other->parameters()[0].detach()));
}

}  // namespace
}  // namespace ulp::train
