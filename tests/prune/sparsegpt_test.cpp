// SparseGPT and movement against plain loops in double.
#include "ulp/prune/scores/sparsegpt.h"

#include "support.h"
#include "ulp/prune/masks/bit_mask.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/movement.h"

namespace ulp::prune::tests {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix matrix_of(const at::Tensor& t) {
  const at::Tensor wide = t.detach().flatten(1).to(at::kDouble).contiguous();
  Matrix made(wide.size(0), std::vector<double>(wide.size(1)));
  for (int64_t i = 0; i < wide.size(0); ++i)
    for (int64_t j = 0; j < wide.size(1); ++j) made[i][j] = wide[i][j].item<double>();
  return made;
}

/// By Gauss and Jordan.
Matrix inverse(Matrix a) {
  const size_t n = a.size();
  Matrix b(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) b[i][i] = 1;
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p][p];
    for (size_t j = 0; j < n; ++j) {
      a[p][j] /= pivot;
      b[p][j] /= pivot;
    }
    for (size_t i = 0; i < n; ++i) {
      if (i == p) continue;
      const double factor = a[i][p];
      for (size_t j = 0; j < n; ++j) {
        a[i][j] -= factor * a[p][j];
        b[i][j] -= factor * b[p][j];
      }
    }
  }
  return b;
}

/// U with U' U = a, upper.
Matrix upper_cholesky(const Matrix& a) {
  const size_t n = a.size();
  Matrix u(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < i; ++k) sum -= u[k][i] * u[k][j];
      u[i][j] = i == j ? std::sqrt(sum) : sum / u[i][i];
    }
  }
  return u;
}

struct Expected {
  Matrix w;
  std::vector<std::vector<bool>> keep;
};

/// The definition, one column at a time: every correction goes to all later columns at once.
Expected plain_sparsegpt(Matrix w, Matrix h, double sparsity, int64_t n_of, int64_t m, size_t block) {
  const size_t rows = w.size(), columns = h.size();
  double mean = 0;
  for (size_t j = 0; j < columns; ++j) {
    if (h[j][j] == 0) {
      h[j][j] = 1;
      for (auto& row : w) row[j] = 0;
    }
    mean += h[j][j] / static_cast<double>(columns);
  }
  for (size_t j = 0; j < columns; ++j) h[j][j] += 0.01 * mean;
  const Matrix u = upper_cholesky(inverse(h));
  std::vector<std::vector<bool>> pruned(rows, std::vector<bool>(columns));
  const auto score = [&](size_t i, size_t j) { return w[i][j] * w[i][j] / (u[j][j] * u[j][j]); };
  for (size_t j = 0; j < columns; ++j) {
    if (m == 0 && j % block == 0) {
      const size_t end = std::min(j + block, columns);
      std::vector<std::tuple<double, size_t, size_t>> all;
      for (size_t i = 0; i < rows; ++i)
        for (size_t k = j; k < end; ++k) all.emplace_back(score(i, k), i, k);
      std::sort(all.begin(), all.end());
      const auto until = [&](size_t c) {
        return static_cast<size_t>(sparsity * static_cast<double>(rows * c));
      };
      for (size_t k = 0; k < until(end) - until(j); ++k)
        pruned[std::get<1>(all[k])][std::get<2>(all[k])] = true;
    }
    if (m != 0 && j % static_cast<size_t>(m) == 0) {
      for (size_t i = 0; i < rows; ++i) {
        std::vector<std::pair<double, size_t>> group;
        for (size_t k = j; k < j + static_cast<size_t>(m); ++k) group.emplace_back(score(i, k), k);
        std::sort(group.begin(), group.end());
        for (int64_t k = 0; k < m - n_of; ++k) pruned[i][group[static_cast<size_t>(k)].second] = true;
      }
    }
    for (size_t i = 0; i < rows; ++i) {
      if (!pruned[i][j]) continue;
      const double error = w[i][j] / u[j][j];
      w[i][j] = 0;
      for (size_t k = j + 1; k < columns; ++k) w[i][k] -= error * u[j][k];
    }
  }
  for (auto& row : pruned) row.flip();
  return {w, pruned};
}

void expect_same(const SparseGptResult& got, const Expected& expected) {
  const Matrix w = matrix_of(got.weight);
  const at::Tensor keep = got.keep.flatten(1);
  for (size_t i = 0; i < w.size(); ++i) {
    for (size_t j = 0; j < w[i].size(); ++j) {
      EXPECT_EQ(keep[i][j].item<bool>(), expected.keep[i][j]) << i << ' ' << j;
      EXPECT_NEAR(w[i][j], expected.w[i][j], 1e-5);
      EXPECT_TRUE(expected.keep[i][j] || w[i][j] == 0);
    }
  }
}

/// Inputs whose columns go together; the last but one is always zero.
at::Tensor correlated_inputs(int64_t columns) {
  torch::manual_seed(6);
  at::Tensor x = torch::randn({60, columns}).matmul(torch::randn({columns, columns}));
  x.select(1, columns - 2).zero_();
  return x.to(at::kDouble);
}

TEST(SparseGpt, EqualsItsDefinitionInBlocksOfColumns) {
  const at::Tensor w = torch::randn({6, 20}), x = correlated_inputs(20);
  const at::Tensor products = x.t().matmul(x);
  for (const double sparsity : {0.5, 0.33, 1.0}) {
    const auto got = sparsegpt(w, products, {.sparsity = sparsity, .block = 8});
    expect_same(got, plain_sparsegpt(matrix_of(w), matrix_of(products), sparsity, 0, 0, 8));
    EXPECT_EQ((~got.keep).sum().item<int64_t>(), static_cast<int64_t>(sparsity * 120));
  }
}

TEST(SparseGpt, EqualsItsDefinitionForNOfM) {
  const at::Tensor w = torch::randn({5, 16}), x = correlated_inputs(16);
  const at::Tensor products = x.t().matmul(x);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{2, 4}, {4, 8}}) {
    const auto got = sparsegpt(w, products, {.pattern = Pattern::n_of_m(n, m), .block = 8});
    expect_same(got, plain_sparsegpt(matrix_of(w), matrix_of(products), 0, n, m, 8));
    EXPECT_TRUE((got.keep.unflatten(1, {16 / m, m}).sum(2) == n).all().item<bool>());
  }
}

TEST(SparseGpt, ChangesTheResultsLessThanZeroingTheSmallest) {
  torch::manual_seed(8);
  const at::Tensor w = torch::randn({6, 20}, at::kDouble), x = correlated_inputs(20);
  const auto got = sparsegpt(w, x.t().matmul(x), {.sparsity = 0.5});
  const auto smallest = select({{"w", w.abs(), {}}}, {.amount = Amount::share(0.5)})[0];
  const auto error = [&](const at::Tensor& v) { return (x.matmul((v - w).t())).norm().item<double>(); };
  EXPECT_LT(error(got.weight), 0.9 * error(w * smallest));
}

TEST(SparseGpt, WhatIsPrunedStaysPruned) {
  const at::Tensor w = torch::randn({6, 20}), x = correlated_inputs(20), keep = random_mask({6, 20}, 3, 0.9);
  const auto got = sparsegpt(w, x.t().matmul(x), {.sparsity = 0.5, .block = 8}, keep);
  EXPECT_EQ((got.keep & ~keep).sum().item<int64_t>(), 0);
  EXPECT_EQ(got.keep.sum().item<int64_t>(), 60);
  EXPECT_EQ(got.weight.masked_select(~got.keep).count_nonzero().item<int64_t>(), 0);
}

TEST(SparseGpt, AModulesLayersAreUpdatedAndMasked) {
  const auto module = two_layers();
  const at::Tensor x = torch::randn({50, 12}), w2 = module->named_parameters()["fc2.weight"].detach().clone();
  const at::Tensor dense = module->forward(x);
  prune_sparsegpt(*module, {"fc1.weight", "fc2.weight"}, {{x}}, {.sparsity = 0.5});
  const auto found = masks(module->graph());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kept, 120);
  EXPECT_EQ(found[1].kept, 50);
  // The second layer's inputs are those of the pruned first one.
  const at::Tensor w1 = module->named_parameters()["fc1.weight"].detach().to(at::kDouble);
  const at::Tensor b1 = module->named_parameters()["fc1.bias"].detach().to(at::kDouble);
  const at::Tensor h = torch::relu(torch::linear(x.to(at::kDouble), w1, b1));
  const auto alone = sparsegpt(w2, h.t().matmul(h), {.sparsity = 0.5});
  EXPECT_TRUE(torch::allclose(module->named_parameters()["fc2.weight"], alone.weight, 1e-4, 1e-5));
  EXPECT_TRUE(torch::equal(find_mask(module->graph(), "fc2.weight"), alone.keep));
  EXPECT_GT((module->forward(x) - dense).abs().max().item<float>(), 0);
}

TEST(SparseGpt, ErrorsLeaveTheModuleAsItWas) {
  const auto module = two_layers();
  const at::Tensor before = module->named_parameters()["fc1.weight"].detach().clone();
  {
    const torch::NoGradGuard no_grad;
    module->named_parameters()["fc1.bias"].fill_(-1e30);  // the second layer's inputs are all zero
    module->named_parameters()["fc2.weight"][0][0] = 1;
  }
  const at::Tensor x = torch::full({4, 12}, NAN);
  EXPECT_SAYS(error_of([&] {
                prune_sparsegpt(*module, {"fc1.weight", "fc2.weight"}, {{x}});
              }),
              "'fc1.weight': ");
  EXPECT_TRUE(same_bits(module->named_parameters()["fc1.weight"], before));
  EXPECT_TRUE(masks(module->graph()).empty());
  EXPECT_SAYS(error_of([&] { prune_sparsegpt(*module, {"fc1.weight"}, {{x}}, {.sparsity = 2}); }),
              "sparsity in [0, 1]");
  EXPECT_SAYS(error_of([&] { prune_sparsegpt(*module, {"fc1.bias"}, {{x}}); }), "got 'fc1.bias'");
  EXPECT_SAYS(error_of([&] { sparsegpt(torch::ones({2, 3}), torch::ones({2, 2}), {}); }), "sizes [3, 3]");
  EXPECT_SAYS(error_of([&] {
                sparsegpt(torch::ones({2, 6}), torch::eye(6), {.pattern = Pattern::n_of_m(2, 4)});
              }),
              "columns in a multiple of 4, got 6");
}

TEST(Movement, ScoresAreTheSumOfGradientTimesWeight) {
  for (const bool soft : {false, true}) {
    const auto module = two_layers();
    const at::Tensor x = torch::randn({16, 12}), keep = random_mask({20, 12}, 2);
    set_mask(*module, "fc1.weight", keep, /*dense_gradient=*/true);
    MovementScores scores(module, {"fc1.weight"}, {.lr = 0.5, .soft = soft, .threshold = 0.4, .penalty = 2});
    at::Tensor weight = module->named_parameters()["fc1.weight"],
               expected = torch::zeros({20, 12}, at::kDouble);
    torch::optim::SGD optimizer({weight}, 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      module->forward(x).pow(2).sum().backward();
      // The gradient of the masked weight, of its pruned elements too.
      const auto baked = bake(*module);
      baked->forward(x).pow(2).sum().backward();
      const at::Tensor dense = baked->named_parameters()["fc1.weight"].grad();
      EXPECT_TRUE(torch::allclose(weight.grad(), dense));
      for (int64_t i = 0; i < 20; ++i) {
        for (int64_t j = 0; j < 12; ++j) {
          const double sigmoid = 1 / (1 + std::exp(-expected[i][j].item<double>()));
          const double penalty = soft ? 2 * sigmoid * (1 - sigmoid) / 240 : 0;
          expected[i][j] -= 0.5 * (dense[i][j].item<double>() * weight[i][j].item<double>() + penalty);
        }
      }
      scores.update();
      EXPECT_TRUE(torch::allclose(scores.scores()[0].to(at::kDouble), expected, 1e-5, 1e-6));
      EXPECT_TRUE(torch::equal(weight.grad(), dense * keep)) << "pruned weights do not train";
      optimizer.step();
    }
    EXPECT_TRUE(torch::equal(scores.above_threshold()[0], torch::sigmoid(scores.scores()[0]) > 0.4));
  }
}

TEST(Movement, WrongUsesAreErrors) {
  const auto module = two_layers();
  MovementScores scores(module, {"fc1.weight"});
  EXPECT_SAYS(error_of([&] { scores.update(); }), "a gradient of 'fc1.weight', got none");
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 2));
  module->forward(torch::randn({2, 12})).sum().backward();
  EXPECT_SAYS(error_of([&] { scores.update(); }), "a mask with dense_gradient for 'fc1.weight'");
  EXPECT_SAYS(error_of([&] { scores.set_scores({}); }), "expected 1 tensors, got 0");
  EXPECT_SAYS(error_of([&] { MovementScores(module, {"fc9"}); }), "got 'fc9'");
  EXPECT_SAYS(error_of([&] { MovementScores(module, {}, {.lr = 0}); }), "lr > 0");
}

}  // namespace
}  // namespace ulp::prune::tests
