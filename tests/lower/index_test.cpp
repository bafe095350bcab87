// Ops on ids: the engine gives the graph's numbers, looks ids up as PyTorch does, and refuses by name.
#include <gtest/gtest.h>

#include <limits>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;

using Tensors = std::vector<Tensor>;
using IndexBody = std::function<Tensors(const Tensors&)>;
using IndexInputs = std::function<Tensors(int64_t batch)>;

/// Captured in eval mode; `root` may own parameters.
std::shared_ptr<graph::GraphModule> captured_indexing(const IndexBody& body, const IndexInputs& inputs,
                                                      std::shared_ptr<nn::Module> root = nullptr) {
  if (!root) root = std::make_shared<Net>();
  root->eval();
  const torch::NoGradGuard no_grad;
  const graph::Forward forward = [&](const Tensors& x) {
    Tensors results = body(x);
    return results.size() == 1 ? c10::IValue(results[0]) : c10::IValue(results);
  };
  auto module = graph::capture(*root, forward, inputs(3));
  module->eval();
  return module;
}

/// Engine and graph at several batch sizes and thread counts; a bound of 0 asks for the same bits.
void expect_results(graph::GraphModule& module, const runtime::Plan& plan, const IndexInputs& inputs,
                    double bound) {
  const torch::NoGradGuard no_grad;
  for (const int threads : {1, 2}) {
    runtime::Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {1, 2, 5, 40}) {
      const Tensors x = inputs(batch), expected = module.forward_all(x), got = run_engine_all(engine, x);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].sizes(), expected[i].sizes());
        EXPECT_EQ(got[i].scalar_type() == at::kLong, expected[i].scalar_type() == at::kLong);
        const Tensor wide = expected[i].to(got[i].scalar_type());
        const double largest = wide.to(at::kDouble).abs().max().item<double>(),
                     error = (got[i].to(at::kDouble) - wide.to(at::kDouble)).abs().max().item<double>();
        EXPECT_TRUE(bound == 0 ? got[i].equal(wide) : error <= bound * largest)
            << "result " << i << ", batch " << batch << ": off by " << error << "\n"
            << listing(plan);
      }
    }
  }
}

struct IndexCase {
  const char* name;
  IndexBody body;
  IndexInputs inputs;
  double bound = 0;
};

Tensor random_ids(int64_t limit, std::vector<int64_t> sizes) {
  return torch::randint(0, limit, sizes);
}

int steps_of_kind(const runtime::Plan& plan, runtime::Op op) {
  return static_cast<int>(std::ranges::count(plan.steps, op, &runtime::Step::op));
}

/// Lowered in both precisions: these cases only move numbers, so that bf16 rounds what comes in at most.
void expect_index_cases(const std::vector<IndexCase>& cases) {
  torch::manual_seed(1);
  for (const IndexCase& c : cases) {
    SCOPED_TRACE(c.name);
    try {
      const auto module = captured_indexing(c.body, c.inputs);
      expect_results(*module, lower(*module), c.inputs, c.bound);
      expect_results(*module, lower(*module, {.precision = LowerOptions::Precision::bf16}), c.inputs,
                     1.0 / 64);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

Tensor small_table() {
  return torch::arange(9 * 4, torch::kFloat).view({9, 4}) / 8;
}

TEST(IndexOps, RowsAndElementsThatIdsPick) {
  expect_index_cases({
      {"gather", [](const Tensors& x) -> Tensors { return {x[0].gather(1, x[1])}; },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 7}), random_ids(7, {n, 3})};
       }},
      {"gather of images", [](const Tensors& x) -> Tensors { return {torch::relu(x[0]).gather(2, x[1])}; },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 3, 5, 4}), random_ids(5, {n, 2, 6, 4})};
       }},
      {"gather of rows by an expanded index",
       [](const Tensors& x) -> Tensors {
         return {x[0].gather(1, x[1].unsqueeze(-1).expand({-1, -1, 8}))};
       },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 6, 8}), random_ids(6, {n, 4})};
       }},
      {"gather of ids by computed ids",
       [](const Tensors& x) -> Tensors {
         return {x[0].gather(1, x[1].argmax(1, true)), x[0].gather(-1, torch::remainder(x[0] + 1, 5))};
       },
       [](int64_t n) -> Tensors {
         return {random_ids(5, {n, 6}), torch::randn({n, 6})};
       }},
      {"take_along_dim",
       [](const Tensors& x) -> Tensors { return {torch::take_along_dim(x[0], x[0].argsort(int64_t{1}), 1)}; },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 6})};
       }},
      {"index_select by a constant",
       [](const Tensors& x) -> Tensors {
         return {x[0].index_select(1, torch::tensor({3, 0, 3})),
                 x[0].index_select(-1, torch::tensor({1, 1, 0}))};
       },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 4, 2})};
       }},
      {"indexing by constants",
       [](const Tensors& x) -> Tensors {
         return {x[0].index({Slice(), torch::tensor({{3, -1}, {-4, 0}})}),
                 x[0].index({Slice(), Slice(), torch::tensor({true, false, true})}),
                 x[0].index({Slice(), torch::tensor({0, -1, 2}), torch::tensor({2, -3, 1})}),
                 x[0].index({Slice(), torch::eye(4, torch::kBool).narrow(1, 0, 3)})};
       },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 4, 3})};
       }},
      {"the upper triangle of products",
       [](const Tensors& x) -> Tensors {
         const Tensor at = torch::triu_indices(4, 4, 1);
         return {torch::bmm(x[0], x[0].transpose(1, 2)).index({Slice(), at[0], at[1]})};
       },
       [](int64_t n) -> Tensors {
         return {torch::randint(-3, 3, {n, 4, 2}).to(torch::kFloat)};
       }},
      {"one row of each item",
       [](const Tensors& x) -> Tensors {
         return {x[0].index({torch::arange(x[0].size(0)), x[1].argmax(1)}),
                 x[0].index({torch::arange(x[0].size(0)), x[2]})};
       },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 5, 3}), torch::randn({n, 5}), random_ids(10, {n}) - 5};
       }},
      {"rows of tables",
       [](const Tensors& x) -> Tensors {
         return {small_table().index({x[0]}), small_table().view({9, 2, 2}).index({x[0]}),
                 small_table().select(1, 0).index({x[0]}), torch::arange(9, 0, -1).index({x[0] - 3})};
       },
       [](int64_t n) -> Tensors {
         return {random_ids(9, {n, 3})};
       }},
      {"rows of a table by one id each",
       [](const Tensors& x) -> Tensors { return {small_table().index_select(0, x[0])}; },
       [](int64_t n) -> Tensors { return {random_ids(9, {n})}; }},
  });
}

TEST(IndexOps, EmbeddingsOfComputedIds) {
  const auto embed = [](const Tensor& x) { return torch::embedding(small_table(), x); };
  const auto tokens = [](int64_t n) -> Tensors { return {random_ids(8, {n, 6})}; };
  expect_index_cases({
      {"transposed",
       [=](const Tensors& x) -> Tensors {
         return {embed(x[0].view({-1, 2, 3}).transpose(1, 2))};
       },
       tokens},
      {"cut", [=](const Tensors& x) -> Tensors { return {embed(x[0].slice(1, 1, 6, 2))}; }, tokens},
      {"flipped", [=](const Tensors& x) -> Tensors { return {embed(x[0].flip({1}))}; }, tokens},
      {"added to", [=](const Tensors& x) -> Tensors { return {embed(x[0] + 1)}; }, tokens},
      {"added to, in a large table",
       [](const Tensors& x) -> Tensors {
         const Tensor rows = torch::sin(torch::arange(6000, torch::kFloat) * 7).view({3000, 2});
         return {torch::embedding(rows, x[0] * 37 + 5)};
       },
       [](int64_t n) -> Tensors {
         return {random_ids(80, {n, 6})};
       }},
      {"selected", [=](const Tensors& x) -> Tensors { return {embed(x[0].select(1, -1))}; }, tokens},
      {"joined",
       [=](const Tensors& x) -> Tensors {
         return {embed(torch::cat({x[0].narrow(1, 0, 2), x[0]}, 1)),
                 embed(torch::cat({x[0].narrow(1, 0, 2) + 1, x[0]}, 1))};
       },
       tokens},
      {"places of extremes",
       [=](const Tensors& x) -> Tensors {
         return {embed(x[0].argmax(2)), embed(std::get<1>(x[0].max(1)))};
       },
       [](int64_t n) -> Tensors {
         return {torch::randn({n, 6, 8})};
       }},
      {"of images", [=](const Tensors& x) -> Tensors { return {embed(torch::relu(x[0]).argmax(1, true))}; },
       [](int64_t n) -> Tensors {
         return {torch::rand({n, 6, 3, 2}).argsort(int64_t{1}).to(torch::kFloat)};
       }},
      {"i32", [=](const Tensors& x) -> Tensors { return {embed(x[0].transpose(1, 2))}; },
       [](int64_t n) -> Tensors {
         return {random_ids(8, {n, 2, 3}).to(torch::kInt)};
       }},
  });
}

TEST(IndexOps, IdsThatLeaveAsTheyAre) {
  expect_index_cases(
      {{"moved",
        [](const Tensors& x) -> Tensors {
          return {x[0], x[0].transpose(1, 2), x[0].flip({2})};
        },
        [](int64_t n) -> Tensors {
          return {torch::randint(0, int64_t{1} << 60, {n, 2, 3})};
        }},
       {"as numbers",
        [](const Tensors& x) -> Tensors {
          return {x[0].transpose(1, 2).to(torch::kFloat) * 0.5, x[0].select(1, 0).eq(3).to(torch::kLong)};
        },
        [](int64_t n) -> Tensors {
          return {random_ids(9, {n, 2, 3})};
        }}});
}

TEST(IndexOps, WhatIdsPlace) {
  const auto two = [](int64_t n) -> Tensors {
    return {torch::randint(-8, 8, {n, 7}).to(torch::kFloat), random_ids(7, {n, 3})};
  };
  expect_index_cases({
      {"scatter of a number", [](const Tensors& x) -> Tensors { return {x[0].scatter(1, x[1], 1.5)}; }, two},
      {"scatter of minus infinity",
       [](const Tensors& x) -> Tensors {
         return {x[0].scatter(1, x[1], -std::numeric_limits<double>::infinity())
                     .softmax(1)
                     .gt(0)
                     .to(torch::kFloat)};
       },
       two},
      {"scatter of a source",
       [](const Tensors& x) -> Tensors { return {x[0].scatter(1, std::get<1>(x[0].topk(3)), x[0])}; },
       [](int64_t n) -> Tensors {
         return {torch::rand({n, 9}).argsort(int64_t{1}).to(torch::kFloat)};
       }},
      {"scatter_add",
       [](const Tensors& x) -> Tensors {
         return {x[0].scatter_add(1, x[1], x[0]),
                 torch::zeros({x[0].size(0), 7}).scatter_add_(1, x[1], x[0])};
       },
       two},
      {"scatter_reduce",
       [](const Tensors& x) -> Tensors {
         Tensors results;
         for (const char* reduce : {"sum", "prod", "amax", "amin", "mean"}) {
           results.push_back(x[0].scatter_reduce(1, x[1], x[0] * 0.5, reduce));
           results.push_back(x[0].scatter_reduce(1, x[1], x[0] * 0.5, reduce, false));
         }
         return results;
       },
       two, 1e-6},
      {"a histogram",
       [](const Tensors& x) -> Tensors {
         return {torch::zeros({x[1].size(0), 7}).scatter_add(1, x[1], torch::ones_like(x[1], torch::kFloat))};
       },
       two},
      {"scatter of images",
       [](const Tensors& x) -> Tensors { return {torch::relu(x[0]).scatter(3, x[1], x[0])}; },
       [](int64_t n) -> Tensors {
         return {torch::randint(-8, 8, {n, 3, 2, 5}).to(torch::kFloat),
                 torch::rand({n, 2, 2, 5}).argsort(int64_t{3}).narrow(3, 0, 4)};
       }},
      {"one_hot",
       [](const Tensors& x) -> Tensors {
         return {torch::one_hot(x[1], 9), torch::one_hot(x[0].argmax(1), 7).to(torch::kFloat) * x[0]};
       },
       two},
  });
}

TEST(IndexOps, Sorting) {
  const auto rows = [](int64_t n) -> Tensors {
    return {torch::randint(-100, 100, {n, 9, 4}).to(torch::kFloat)};
  };
  // Whole numbers that bf16 holds, none of them twice: orders of equal ones are not alike everywhere.
  const auto distinct = [](int64_t n) -> Tensors {
    return {(torch::rand({n, 200, 4}).argsort(int64_t{1}).narrow(1, 0, 9) - 100).to(torch::kFloat)};
  };
  expect_index_cases({
      {"sort",
       [](const Tensors& x) -> Tensors {
         const auto [up, at] = x[0].sort(/*stable=*/true, 1, false);
         const auto [down, places] = x[0].sort(/*stable=*/true, -1, true);
         return {up, at, down, places};
       },
       rows},
      {"values alone", [](const Tensors& x) -> Tensors { return {std::get<0>(x[0].sort(1))}; }, rows},
      {"argsort", [](const Tensors& x) -> Tensors { return {x[0].argsort(true, 1, true)}; }, rows},
      {"ranks, as orders of orders",
       [](const Tensors& x) -> Tensors {
         const Tensor order = x[0].argsort(int64_t{1}), ranks = order.argsort(int64_t{1});
         const Tensor best = std::get<1>(x[0].topk(4, 1));
         return {ranks, x[0].gather(1, order).gather(1, ranks), best.argsort(true, 1, true),
                 std::get<1>(std::get<1>(x[0].sort(1)).sort(1, true))};
       },
       distinct},
      {"a constant like a part",
       [](const Tensors& x) -> Tensors {
         return {torch::cat({x[0], torch::tensor({7.5F}).expand_as(x[0].narrow(1, 0, 1))}, 1)};
       },
       rows},
      {"sort of images", [](const Tensors& x) -> Tensors { return {std::get<0>(torch::relu(x[0]).sort(1))}; },
       [](int64_t n) -> Tensors {
         return {torch::randint(-100, 100, {n, 9, 4, 2}).to(torch::kFloat)};
       }},
      {"topk",
       [](const Tensors& x) -> Tensors {
         return {std::get<0>(x[0].topk(3, 1)), std::get<0>(x[0].topk(9, 1, false)),
                 std::get<0>(torch::topk(x[0], 1))};
       },
       rows},
      {"the places of topk",
       [](const Tensors& x) -> Tensors {
         const auto [values, places] = x[0].topk(4, 1);
         return {values, places};
       },
       [](int64_t n) -> Tensors {
         return {torch::rand({n, 9}).argsort(int64_t{1}).to(torch::kFloat)};
       }},
      {"a mixture of the best",
       [](const Tensors& x) -> Tensors {
         const auto [best, places] = x[0].topk(2, 1);
         return {torch::zeros_like(x[0]).scatter(1, places, best)};
       },
       [](int64_t n) -> Tensors {
         return {torch::rand({n, 9}).argsort(int64_t{1}).to(torch::kFloat)};
       }},
  });
}

TEST(IndexOps, BagsOfEveryMode) {
  torch::manual_seed(2);
  for (const int64_t padding : {-1, 0, 3}) {
    for (const int64_t mode : {0, 1, 2}) {
      SCOPED_TRACE("mode " + std::to_string(mode) + ", padding " + std::to_string(padding));
      const IndexBody body = [=](const Tensors& x) -> Tensors {
        const Tensor offsets = torch::arange(0, x[0].numel(), x[0].size(1));
        const std::optional<Tensor> shares =
            mode == 0 ? std::optional<Tensor>(x[1].reshape({-1})) : std::nullopt;
        const auto bags = padding < 0 ? torch::embedding_bag(small_table(), x[0].reshape({-1}), offsets,
                                                             false, mode, false, shares)
                                      : torch::embedding_bag(small_table(), x[0].reshape({-1}), offsets,
                                                             false, mode, false, shares, false, padding);
        return {std::get<0>(bags)};
      };
      const IndexInputs inputs = [&](int64_t n) -> Tensors {
        Tensor some = random_ids(9, {n, 5});
        if (padding >= 0) some[0].fill_(padding);
        return {some, torch::rand({n, 5})};
      };
      const auto module = captured_indexing(body, inputs);
      expect_results(*module, lower(*module), inputs, 1e-6);
    }
  }
}

TEST(IndexOps, AdaptiveMaximaOfWholeWindows) {
  expect_index_cases({{"of sequences",
                       [](const Tensors& x) -> Tensors {
                         return {std::get<0>(torch::adaptive_max_pool1d(x[0], 3)),
                                 std::get<0>(torch::adaptive_max_pool1d(x[0], 1)).squeeze(-1)};
                       },
                       [](int64_t n) -> Tensors {
                         return {torch::randn({n, 4, 12})};
                       }},
                      {"of images",
                       [](const Tensors& x) -> Tensors {
                         return {std::get<0>(torch::adaptive_max_pool2d(torch::relu(x[0]), {3, 2}))};
                       },
                       [](int64_t n) -> Tensors {
                         return {torch::randn({n, 4, 6, 8})};
                       }}});
}

TEST(IndexOps, RowsPickedByAnExpandedIndexAreCopied) {
  const IndexInputs inputs = [](int64_t n) -> Tensors {
    return {torch::randn({n, 6, 8}), random_ids(6, {n, 4})};
  };
  const auto module = captured_indexing(
      [](const Tensors& x) -> Tensors {
        return {x[0].gather(1, x[1].unsqueeze(-1).expand({-1, -1, 8}))};
      },
      inputs);
  const runtime::Plan plan = lower(*module);
  ASSERT_EQ(plan.steps.size(), 1U) << listing(plan);
  EXPECT_FALSE(plan.steps[0].get<runtime::GatherAttributes>().each);
  EXPECT_EQ(plan.steps[0].inputs, plan.inputs);
}

TEST(IndexOps, BothResultsOfTopkSortOnce) {
  const auto module = captured_indexing(
      [](const Tensors& x) -> Tensors {
        const auto [values, places] = x[0].topk(2, 1);
        return {values, places};
      },
      [](int64_t n) -> Tensors {
        return {torch::randn({n, 9})};
      });
  const runtime::Plan plan = lower(*module);
  EXPECT_EQ(steps_of_kind(plan, runtime::Op::sort), 1);
  EXPECT_EQ(steps_of_kind(plan, runtime::Op::gather), 1);
}

/// Eight bits: what `pick` chooses is codes that a layer reads, too.
void expect_codes_to_pass(const Body& pick, runtime::Op op) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  nn::Linear in = net->add("in", nn::Linear(6, 8)), out = net->add("out", nn::Linear(8, 5)),
             beside = net->add("beside", nn::Linear(8, 5));
  net->body = [=](const Tensor& x) mutable {
    const Tensor h = torch::relu(in(x));
    return torch::cat({out(pick(h)), beside(h)}, 1);
  };
  const auto prepared = quant::prepare(captured(net, torch::randn({2, 4, 6})), quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->run({torch::randn({16, 4, 6})});
  const auto module = quant::convert(prepared);
  const runtime::Plan plan = lower(*module);
  bool codes = false;
  for (const runtime::Step& step : plan.steps) {
    codes = codes ||
            (step.op == op && plan.tensors[static_cast<size_t>(step.output)].type == runtime::DataType::u8);
  }
  EXPECT_TRUE(codes) << listing(plan);
  const IndexInputs inputs = [](int64_t n) -> Tensors { return {torch::randn({n, 4, 6})}; };
  expect_results(*module, plan, inputs, 2.0 / 255);
}

TEST(IndexOps, CodesPass) {
  expect_codes_to_pass(
      [](const Tensor& x) {
        return x.index_select(1, torch::tensor({2, 0}));
      },
      runtime::Op::gather);
  expect_codes_to_pass([](const Tensor& x) { return std::get<0>(x.topk(2, 1)); }, runtime::Op::sort);
  expect_codes_to_pass([](const Tensor& x) { return std::get<0>(x.sort(1)); }, runtime::Op::sort);
}

TEST(IndexOps, BadIdsAreErrorsAsInPyTorch) {
  const IndexBody bodies[] = {
      [](const Tensors& x) -> Tensors { return {torch::embedding(small_table(), x[0] + 1)}; },
      [](const Tensors& x) -> Tensors { return {x[1].gather(1, x[0].flip({1}))}; },
      [](const Tensors& x) -> Tensors { return {x[1].scatter(1, x[0].flip({1}), 2)}; },
      [](const Tensors& x) -> Tensors { return {torch::one_hot(x[0], 9)}; },
      [](const Tensors& x) -> Tensors { return {small_table().index({x[0]})}; },
  };
  const IndexInputs inputs = [](int64_t n) -> Tensors {
    return {random_ids(8, {n, 3}), torch::randn({n, 9})};
  };
  for (size_t i = 0; i < std::size(bodies); ++i) {
    SCOPED_TRACE(i);
    const auto module = captured_indexing(bodies[i], inputs);
    runtime::Engine engine(lower(*module), {.threads = 2});
    for (const int64_t bad : {9, 1000, -2, -20}) {
      if (i == 4 && bad == -2) continue;  // indexing counts from the end
      Tensors x = inputs(30);
      const Tensor good = run_engine_all(engine, x).at(0);
      const Tensor kept = x[0].clone();
      x[0][17][1] = bad;
      EXPECT_ANY_THROW(bodies[i](x));
      const std::string said = error_of([&] { run_engine_all(engine, x); });
      EXPECT_SAYS(said, "[runtime.Engine.run] expected ids in [");
      EXPECT_SAYS(said, i == 0 ? std::to_string(bad + 1) : std::to_string(bad));
      x[0] = kept;
      EXPECT_TRUE(run_engine_all(engine, x).at(0).equal(good)) << "the engine is usable";
    }
  }
}

TEST(IndexOps, NaNIsNoId) {
  const IndexBody body = [](const Tensors& x) -> Tensors {
    return {torch::embedding(small_table(), x[0].to(torch::kLong))};
  };
  const auto module = captured_indexing(body, [](int64_t n) -> Tensors { return {torch::ones({n, 3})}; });
  runtime::Engine engine(lower(*module), {.threads = 2});
  Tensor x = torch::ones({4, 3});
  const Tensor good = run_engine_all(engine, {x}).at(0);
  x[2][1] = NAN;
  EXPECT_SAYS(error_of([&] { run_engine_all(engine, {x}); }), "for 'embedding', got NaN");
  EXPECT_TRUE(run_engine_all(engine, {torch::ones({4, 3})}).at(0).equal(good)) << "the engine is usable";
}

std::string index_refusal(const IndexBody& body, const IndexInputs& inputs) {
  const auto module = captured_indexing(body, inputs);
  return error_of([&] { lower(*module); });
}

TEST(IndexOps, RefusalsSayWhy) {
  const IndexInputs inputs = [](int64_t n) -> Tensors {
    return {torch::randn({n, 5, 3}), random_ids(3, {n}), random_ids(5, {n, 4})};
  };
  EXPECT_SAYS(index_refusal(
                  [](const Tensors& x) -> Tensors {
                    return {x[0].masked_select(torch::ones({5, 3}, torch::kBool))};
                  },
                  inputs),
              "aten::masked_select 'masked_select': the size of its result depends on the data");
  EXPECT_SAYS(
      index_refusal(
          [](const Tensors& x) -> Tensors { return {x[0].gather(0, x[2].narrow(1, 0, 3).unsqueeze(1) * 0)}; },
          inputs),
      "another dimension of 'input_0' than the batch");
  EXPECT_SAYS(index_refusal(
                  [](const Tensors& x) -> Tensors {
                    return {x[0].index({Slice(), x[1]})};
                  },
                  inputs),
              "expected constants as indices");
  EXPECT_SAYS(index_refusal([](const Tensors& x) -> Tensors { return {std::get<0>(x[0].sort(0))}; }, inputs),
              "than the batch");
  EXPECT_SAYS(
      index_refusal([](const Tensors& x) -> Tensors { return {x[0] * torch::arange(x[0].size(0)).sum()}; },
                    inputs),
      "aten::arange");
}

TEST(IndexOps, AHashOfIdsIsRefusedAndRunsInPieces) {
  const at::Tensor table = torch::randn({97, 3});
  auto net = std::make_shared<Net>();
  net->body = [=](const at::Tensor& ids) {
    return torch::embedding(table, (ids * 1000003 + 12345).remainder(97));
  };
  const auto module = captured(net, torch::randint(0, 50, {2, 4}));
  EXPECT_NE(error_of([&] { lower(*module); }).find("below 2^24"), std::string::npos);
  PartitionedModel pieces = lower_partitioned(*module);
  const at::Tensor ids = torch::randint(0, 50, {5, 4});
  EXPECT_TRUE(pieces.run({ids}).at(0).equal(module->forward(ids)));
}

}  // namespace
}  // namespace ulp::test
