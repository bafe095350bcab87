// Ops that others can spell: engine against graph.
#include <gtest/gtest.h>

#include <limits>

#include "support.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;

void expect_agreement(graph::GraphModule& module, const std::vector<int64_t>& item) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(module);
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    EXPECT_TRUE(torch::allclose(got, module.forward({x}), 1e-4, 1e-5)) << listing(plan);
  });
}

TEST(SpellOut, CosineSimilarity) {
  const auto module = captured_body(
      [](const Tensor& x) {
        return torch::cosine_similarity(x.narrow(1, 0, 3), x.narrow(1, 3, 3), 1) +
               torch::cosine_similarity(x.narrow(1, 0, 3), x.narrow(1, 3, 3) * 0, 1, 1e-3);
      },
      torch::randn({2, 6, 5}));
  expect_agreement(*module, {6, 5});
}

TEST(SpellOut, Distances) {
  for (const double p : {0.0, 1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const auto module =
        captured_body([=](const Tensor& x) { return torch::cdist(x, x.narrow(1, 1, 2).flip({1}) + 1, p); },
                      torch::randn({2, 4, 5}));
    expect_agreement(*module, {4, 5});
  }
}

TEST(SpellOut, ProductsWithASum) {
  auto net = std::make_shared<Net>();
  const Tensor matrix = net->register_parameter("matrix", torch::randn({6, 4})),
               bias = net->register_parameter("bias", torch::randn({4}));
  net->body = [=](const Tensor& x) {
    return at::addmm(at::addmm(bias, x, matrix), x, matrix, 0.5, 2) + at::addmm(x.narrow(1, 0, 4), x, matrix);
  };
  const auto module = captured(net, torch::randn({2, 6}));
  expect_agreement(*module, {6});
  EXPECT_EQ(listing(lower(*module)).find("matmul"), std::string::npos);
}

TEST(SpellOut, ColumnsBecomeImages) {
  const auto module = captured_body(
      [](const Tensor& x) {
        const Tensor columns = at::im2col(x, {3, 2}, {1, 2}, {1, 0}, {2, 1});
        return at::col2im(columns * 0.5, {7, 8}, {3, 2}, {1, 2}, {1, 0}, {2, 1}) +
               at::col2im(x.flatten(1).view({x.size(0), 3 * 8, 7}), {7, 8}, {1, 8}, {1, 1}, {0, 0}, {1, 1});
      },
      torch::randn({2, 3, 7, 8}));
  expect_agreement(*module, {3, 7, 8});
}

TEST(SpellOut, AdaptivePoolingToAnySize) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 4}, {7, 2}, {1, 5}, {9, 9}}) {
    const auto module = captured_body(
        [rows = rows, columns = columns](const Tensor& x) {
          return torch::adaptive_avg_pool2d(torch::relu(x), {rows, columns});
        },
        torch::randn({2, 3, 7, 9}));
    expect_agreement(*module, {3, 7, 9});
  }
  const auto sequence = captured_body([](const Tensor& x) { return torch::adaptive_avg_pool1d(x * 2, 4); },
                                      torch::randn({2, 3, 11}));
  expect_agreement(*sequence, {3, 11});
}

/// A loop over the steps of a text, as users of cells write it; with a first state or without.
template <typename Cell, typename Step>
void expect_cell(Cell cell, Step step) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  net->add("cell", cell);
  net->body = [=](const Tensor& x) mutable { return step(cell, x); };
  expect_agreement(*captured(net, torch::randn({2, 4, 5})), {4, 5});
}

TEST(SpellOut, CellsOfUsersLoops) {
  expect_cell(nn::LSTMCell(5, 7), [](nn::LSTMCell& cell, const Tensor& x) {
    Tensor h = torch::zeros({x.size(0), 7}), c = torch::full({x.size(0), 7}, 0.5);
    for (int64_t t = 0; t < x.size(1); ++t) std::tie(h, c) = cell(x.select(1, t), std::make_tuple(h, c));
    return torch::cat({h, c}, 1);
  });
  expect_cell(nn::GRUCell(nn::GRUCellOptions(5, 6).bias(false)), [](nn::GRUCell& cell, const Tensor& x) {
    Tensor h = torch::ones({x.size(0), 6});
    for (int64_t t = 0; t < x.size(1); ++t) h = cell(x.select(1, t), h);
    return h;
  });
}

}  // namespace
}  // namespace ulp::test
