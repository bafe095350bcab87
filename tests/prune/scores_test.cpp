// Every score against its definition: plain loops and differences in double.
#include "support.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/score.h"
#include "ulp/prune/select.h"

namespace ulp::prune::tests {
namespace {

using graph::GraphModule;

const std::vector<std::string> kBoth = {"fc1.weight", "fc2.weight"};

/// Without kinks, in double.
struct SmoothImpl : torch::nn::Module {
  SmoothImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(5, 4));
    fc2 = register_module("fc2", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::tanh(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Smooth);

struct Problem {
  std::shared_ptr<GraphModule> module;
  ScoreInputs inputs;
};

/// A loss of two batches.
Problem smooth_problem() {
  torch::manual_seed(9);
  Smooth model;
  model->to(at::kDouble);
  const at::Tensor x = torch::randn({2, 6, 5}, at::kDouble), y = torch::randn({2, 6, 3}, at::kDouble);
  ScoreInputs inputs{
      .loss = [x, y](GraphModule& module,
                     int64_t batch) { return (module.forward(x[batch]) - y[batch]).pow(2).mean(); },
      .batches = 2};
  return {capture(model, {x[0]}), inputs};
}

double mean_loss(const Problem& problem) {
  double sum = 0;
  for (int64_t batch = 0; batch < 2; ++batch)
    sum += problem.inputs.loss(*problem.module, batch).item<double>() / 2;
  return sum;
}

/// Central differences of the loss, in the shape of the parameter.
at::Tensor numeric_gradient(const Problem& problem, const std::string& name) {
  const torch::NoGradGuard no_grad;
  at::Tensor weight = problem.module->named_parameters()[name];
  at::Tensor gradient = torch::zeros_like(weight);
  double* w = weight.mutable_data_ptr<double>();
  for (int64_t i = 0; i < weight.numel(); ++i) {
    const double before = w[i], h = 1e-5;
    w[i] = before + h;
    const double up = mean_loss(problem);
    w[i] = before - h;
    const double down = mean_loss(problem);
    w[i] = before;
    gradient.mutable_data_ptr<double>()[i] = (up - down) / (2 * h);
  }
  return gradient;
}

TEST(Scores, GradientTaylorAndSnipAreThoseOfTheMeanLoss) {
  const Problem problem = smooth_problem();
  std::vector<at::Tensor> g;
  double sum = 0;
  for (const std::string& name : kBoth) {
    g.push_back(numeric_gradient(problem, name));
    sum += (g.back() * problem.module->named_parameters()[name]).abs().sum().item<double>();
  }
  const auto gradient = compute_scores(Score::gradient, *problem.module, kBoth, problem.inputs);
  const auto taylor = compute_scores(Score::taylor, *problem.module, kBoth, problem.inputs);
  const auto snip = compute_scores(Score::snip, *problem.module, kBoth, problem.inputs);
  for (size_t i = 0; i < kBoth.size(); ++i) {
    const at::Tensor w = problem.module->named_parameters()[kBoth[i]];
    EXPECT_TRUE(torch::allclose(gradient[i], g[i].abs(), 1e-6, 1e-9));
    EXPECT_TRUE(torch::allclose(taylor[i], (g[i] * w).abs(), 1e-6, 1e-9));
    EXPECT_TRUE(torch::allclose(snip[i], (g[i] * w).abs() / sum, 1e-6, 1e-9));
    EXPECT_FALSE(w.grad().defined()) << "gradients of the module are as before";
  }
}

TEST(Scores, GraspIsTheWeightTimesTheHessianTimesTheGradient) {
  const Problem problem = smooth_problem();
  std::vector<at::Tensor> g;
  for (const std::string& name : kBoth) g.push_back(numeric_gradient(problem, name));
  const auto shifted = [&](double h) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < kBoth.size(); ++i) problem.module->named_parameters()[kBoth[i]].add_(g[i], h);
  };
  const auto gradients = [&] {
    std::vector<at::Tensor> made;
    for (const std::string& name : kBoth) made.push_back(numeric_gradient(problem, name));
    return made;
  };
  const double h = 1e-3;
  shifted(h);
  const auto up = gradients();
  shifted(-2 * h);
  const auto down = gradients();
  shifted(h);
  const auto grasp = compute_scores(Score::grasp, *problem.module, kBoth, problem.inputs);
  for (size_t i = 0; i < kBoth.size(); ++i) {
    const at::Tensor expected = problem.module->named_parameters()[kBoth[i]] * (up[i] - down[i]) / (2 * h);
    EXPECT_TRUE(torch::allclose(grasp[i], expected, 1e-4, 1e-6)) << grasp[i] << expected;
    EXPECT_GT(expected.abs().max().item<double>(), 1e-3);
  }
}

TEST(Scores, MagnitudeIsOfDenseWeightsAndRandomFollowsItsSeed) {
  const auto module = two_layers();
  const at::Tensor weight = module->named_parameters()["fc1.weight"].detach();
  EXPECT_TRUE(torch::equal(compute_scores(Score::magnitude, *module, kBoth)[0], weight.abs()));
  const auto one = compute_scores(Score::random, *module, kBoth, {.seed = 3});
  const auto same = compute_scores(Score::random, *module, kBoth, {.seed = 3});
  const auto other = compute_scores(Score::random, *module, kBoth, {.seed = 4});
  EXPECT_TRUE(torch::equal(one[1], same[1]));
  EXPECT_FALSE(torch::equal(one[1], other[1]));
  EXPECT_FALSE(torch::equal(one[0].flatten().slice(0, 0, 100), one[1].flatten()));
}

TEST(Scores, SynFlowIsTheFlowThroughEachWeight) {
  const auto module = two_layers();
  const at::Tensor keep = random_mask({20, 12}, 4);
  set_mask(*module, "fc1.weight", keep);
  const auto parameters = module->named_parameters();
  const auto wide = [&](const char* name) { return parameters[name].detach().to(at::kDouble).abs(); };
  const at::Tensor w1 = wide("fc1.weight") * keep, b1 = wide("fc1.bias"), w2 = wide("fc2.weight");
  const auto got = compute_scores(Score::synflow, *module, kBoth, {.inputs = {{torch::randn({1, 12})}}});
  // One input of ones: y = |W2| (|W1| 1 + |b1|) + |b2|, R = sum of y.
  for (int64_t i = 0; i < 20; ++i) {
    double out = 0, in = b1[i].item<double>();
    for (int64_t k = 0; k < 5; ++k) out += w2[k][i].item<double>();
    for (int64_t j = 0; j < 12; ++j) {
      in += w1[i][j].item<double>();
      EXPECT_NEAR(got[0][i][j].item<double>(), w1[i][j].item<double>() * out, 1e-12);
    }
    for (int64_t k = 0; k < 5; ++k)
      EXPECT_NEAR(got[1][k][i].item<double>(), w2[k][i].item<double>() * in, 1e-12);
  }
  EXPECT_EQ(parameters["fc1.weight"].scalar_type(), at::kFloat);
  EXPECT_SAYS(
      error_of([&] {
        compute_scores(Score::synflow, *module, kBoth, {.inputs = {{torch::ones({1, 12}, at::kLong)}}});
      }),
      "floating-point");
}

/// |w_ij| times the norm of its input over all samples.
TEST(Scores, WandaIsTheWeightTimesTheNormOfItsInput) {
  const auto module = two_layers();
  const at::Tensor a = torch::randn({7, 12}), b = torch::randn({4, 12});
  const auto got = compute_scores(Score::wanda, *module, kBoth, {.inputs = {{a}, {b}}});
  const auto parameters = module->named_parameters();
  const at::Tensor x = torch::cat({a, b}).to(at::kDouble);
  const auto wide = [&](const char* name) { return parameters[name].detach().to(at::kDouble); };
  const at::Tensor hidden = torch::relu(torch::linear(x, wide("fc1.weight"), wide("fc1.bias")));
  const auto check = [](const at::Tensor& scores, const at::Tensor& weight, const at::Tensor& inputs) {
    for (int64_t j = 0; j < weight.size(1); ++j) {
      double norm = 0;
      for (int64_t s = 0; s < inputs.size(0); ++s) norm += std::pow(inputs[s][j].item<double>(), 2);
      for (int64_t i = 0; i < weight.size(0); ++i) {
        const double expected = std::abs(weight[i][j].item<double>()) * std::sqrt(norm);
        EXPECT_NEAR(scores[i][j].item<double>(), expected, 1e-5 * expected + 1e-9);
      }
    }
  };
  check(got[0], wide("fc1.weight"), x);
  check(got[1], wide("fc2.weight"), hidden);
}

/// The rule of the authors' code: a stable sort of each row, its first int(columns * share).
TEST(Scores, WandasMasksAreThoseOfAStableSortInEachRow) {
  const auto module = two_layers();
  const auto scores = compute_scores(Score::wanda, *module, kBoth, {.inputs = {{torch::randn({9, 12})}}});
  const auto keep =
      select({{"fc2.weight", scores[1], {}}}, {.scope = Scope::row, .amount = Amount::share(0.37)})[0];
  const at::Tensor order = std::get<1>(scores[1].sort(std::optional<bool>(true), -1, false));
  const at::Tensor expected =
      torch::ones({5, 20}, at::kBool).scatter(1, order.slice(1, 0, int64_t{20 * 37 / 100}), 0);
  EXPECT_TRUE(torch::equal(keep, expected));
}

struct ConvsImpl : torch::nn::Module {
  ConvsImpl() {
    conv = register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, {3, 2}).stride({2, 1}).padding({1, 0})));
    grouped = register_module("grouped", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1).groups(2)));
    line =
        register_module("line", torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 2, 3).padding(1).dilation(2)));
  }
  at::Tensor forward(const at::Tensor& x) { return line(grouped(conv(x)).flatten(2)); }
  torch::nn::Conv2d conv{nullptr}, grouped{nullptr};
  torch::nn::Conv1d line{nullptr};
};
TORCH_MODULE(Convs);

TEST(Scores, WandaSeesTheWindowsOfConvolutions) {
  torch::manual_seed(5);
  Convs model;
  const at::Tensor x = torch::randn({2, 3, 6, 5});
  const auto module = capture(model, {x});
  const auto got = compute_scores(Score::wanda, *module, {"conv.weight", "line.weight"}, {.inputs = {{x}}});
  const at::Tensor w = model->conv->weight.detach();
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t ky = 0; ky < 3; ++ky)
      for (int64_t kx = 0; kx < 2; ++kx) {
        double sum = 0;
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t oy = 0; oy < 3; ++oy)
            for (int64_t ox = 0; ox < 4; ++ox) {
              const int64_t y = 2 * oy - 1 + ky;
              if (y >= 0 && y < 6) sum += std::pow(x[n][c][y][ox + kx].item<double>(), 2);
            }
        const double expected = std::abs(w[1][c][ky][kx].item<double>()) * std::sqrt(sum);
        EXPECT_NEAR(got[0][1][c][ky][kx].item<double>(), expected, 1e-6 * expected);
      }
  EXPECT_EQ(got[1].sizes(), model->line->weight.sizes());
  EXPECT_SAYS(error_of([&] { compute_scores(Score::wanda, *module, {"grouped.weight"}, {.inputs = {{x}}}); }),
              "without groups, got 'grouped.weight'");
}

TEST(Scores, MissingInputsAndNamesAreErrors) {
  const auto module = two_layers();
  const auto error = [&](Score score, const ScoreInputs& inputs = {}, const char* name = "fc1.weight") {
    return error_of([&] { compute_scores(score, *module, {name}, inputs); });
  };
  EXPECT_SAYS(error(Score::taylor),
              "expected ScoreInputs::loss and at least one batch for taylor, got no loss");
  EXPECT_SAYS(error(Score::wanda), "expected ScoreInputs::inputs for wanda");
  EXPECT_SAYS(error(Score::magnitude, {}, "fc3.weight"), "got 'fc3.weight'");
  EXPECT_SAYS(error(Score::movement), "MovementScores");
  EXPECT_SAYS(error(Score::sparsegpt, {.inputs = {{torch::randn({1, 12})}}}), "prune_sparsegpt()");
  EXPECT_SAYS(
      error(Score::taylor, {.loss = [](GraphModule&, int64_t) { return torch::ones({}).requires_grad_(); }}),
      "depends on 'fc1.weight', got one that does not");
}

}  // namespace
}  // namespace ulp::prune::tests
