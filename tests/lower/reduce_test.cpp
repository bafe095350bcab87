// Reductions and products of matrices: the engine against LibTorch's float64, and refusals by name.
#include <gtest/gtest.h>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

using at::Tensor;
namespace nn = torch::nn;

/// f32 within rounding of float64 at several batch sizes; `terms`: products in one sum.
runtime::Plan expect_near(const Body& body, const std::vector<int64_t>& item, double terms = 1) {
  std::vector<int64_t> example = item;
  example.insert(example.begin(), 2);
  const runtime::Plan plan = lower(*captured_body(body, torch::randn(example)));
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    const Tensor expected = body(x.to(torch::kDouble));
    EXPECT_EQ(got.sizes(), expected.sizes()) << listing(plan);
    if (expected.scalar_type() == torch::kLong) {
      EXPECT_TRUE(got.equal(body(x))) << listing(plan);
      return;
    }
    EXPECT_LE(relative_error(got, expected.to(torch::kDouble)), 8 * kF32 * std::sqrt(terms)) << listing(plan);
  });
  return plan;
}

struct NumberCase {
  const char* name;
  Body body;
  std::vector<int64_t> item;
};

TEST(Reduce, EveryOpIsWithinRounding) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const std::vector<NumberCase> cases = {
      {"sum of channels", [](const Tensor& x) { return x.sum(1); }, {5, 4, 6}},
      {"sum of rows",
       [](const Tensor& x) {
         return x.sum({-1, 1}, true);
       },
       {5, 4, 6}},
      {"sum of a vector", [](const Tensor& x) { return x.sum(-1); }, {300}},
      {"mean of lines", [](const Tensor& x) { return x.mean(2); }, {5, 4, 6}},
      {"mean of the last", [](const Tensor& x) { return x.mean(-1, true); }, {5, 6}},
      {"amax",
       [](const Tensor& x) {
         return x.amax({2, 3});
       },
       {5, 4, 6}},
      {"amin", [](const Tensor& x) { return x.amin(1, true); }, {5, 6}},
      {"max", [](const Tensor& x) { return std::get<0>(x.max(1)); }, {5, 6}},
      {"the place of max", [](const Tensor& x) { return std::get<1>(x.max(2)); }, {5, 4, 6}},
      {"the place of min", [](const Tensor& x) { return std::get<1>(x.min(-1, true)); }, {5, 6}},
      {"prod", [](const Tensor& x) { return x.prod(1); }, {4, 6}},
      {"var",
       [](const Tensor& x) {
         return x.var({1, 2});
       },
       {5, 4, 6}},
      {"var without correction", [](const Tensor& x) { return x.var(1, false, true); }, {5, 4}},
      {"std", [](const Tensor& x) { return x.std(2); }, {5, 9}},
      {"norm", [](const Tensor& x) { return x.norm(2, 1); }, {5, 6}},
      {"norm 1",
       [](const Tensor& x) {
         return torch::linalg_vector_norm(x, 1, at::IntArrayRef{1, 2}, true);
       },
       {5, 6}},
      {"norm inf",
       [](const Tensor& x) { return torch::linalg_vector_norm(x, INFINITY, at::IntArrayRef{-1}); },
       {5, 6}},
      {"argmax", [](const Tensor& x) { return x.argmax(1); }, {7, 3, 5}},
      {"argmin", [](const Tensor& x) { return x.argmin(-1, true); }, {7, 3, 5}},
      {"logsumexp", [](const Tensor& x) { return x.logsumexp(1); }, {7, 3}},
      {"cumsum", [](const Tensor& x) { return x.cumsum(2); }, {3, 7, 4}},
      {"cumprod", [](const Tensor& x) { return x.cumprod(-1); }, {3, 7, 4}},
      {"softmax of channels", [](const Tensor& x) { return x.softmax(1); }, {5, 4, 3}},
      {"softmax of rows", [](const Tensor& x) { return x.softmax(1); }, {9, 5}},
      {"softmax of lines", [](const Tensor& x) { return x.softmax(-2); }, {2, 9, 5}},
      {"log_softmax", [](const Tensor& x) { return x.log_softmax(-1); }, {9, 5}},
      {"log_softmax of channels", [](const Tensor& x) { return x.log_softmax(1); }, {6, 3, 3}},
      {"a view", [](const Tensor& x) { return x.flip({1}).transpose(1, 2).sum(1); }, {6, 3}},
  };
  for (const NumberCase& c : cases) {
    SCOPED_TRACE(c.name);
    try {
      expect_near(c.body, c.item, 4);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Reduce, BothOutputsOfMax) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_body(
      [](const Tensor& x) {
        const auto [values, places] = x.max(1);
        return torch::cat({values, places.to(torch::kFloat)}, 1);
      },
      torch::randn({2, 5, 3}));
  const Tensor x = torch::randn({3, 5, 3});
  runtime::Engine engine(lower(*module));
  EXPECT_TRUE(torch::equal(run_engine(engine, x), module->forward({x})));
}

TEST(Reduce, SoftmaxOverChannelsMovesNothing) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 1)));
  auto last = net->add("last", nn::Conv2d(nn::Conv2dOptions(8, 2, 1)));
  net->body = [=](const Tensor& x) mutable { return last->forward(conv->forward(x).softmax(1)); };
  const runtime::Plan plan = lower(*captured(net, torch::randn({2, 3, 4, 5})));
  runtime::Engine engine(plan);
  std::vector<float> in(2 * 60), out(2 * 40);
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  for (const runtime::StepProfile& step : engine.profile(2, inputs, outputs)) {
    if (step.op != "move") continue;
    EXPECT_EQ(step.kernel, "none") << listing(plan);
  }
}

TEST(Reduce, OfTheBatchIsRefusedByName) {
  const torch::NoGradGuard no_grad;
  const std::vector<std::pair<const char*, Body>> bodies = {
      {"aten::sum", [](const Tensor& x) { return x.sum(0, true).expand_as(x); }},
      {"aten::amax",
       [](const Tensor& x) {
         return x.amax({0, 1}, true).expand_as(x);
       }},
      {"aten::cumsum", [](const Tensor& x) { return x.cumsum(0); }},
      {"aten::softmax", [](const Tensor& x) { return x.softmax(0); }}};
  for (const auto& [op, body] : bodies) {
    const std::string text = error_of([&] { lower(*captured_body(body, torch::randn({2, 4, 6}))); });
    EXPECT_NE(text.find(op), std::string::npos) << text;
    EXPECT_NE(text.find("batch"), std::string::npos) << text;
  }
}

TEST(Matmul, OfTwoValuesInAnyForm) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  const std::vector<NumberCase> cases = {
      {"bmm", [](const Tensor& x) { return x.bmm(x.transpose(1, 2)); }, {9, 5}},
      {"left side transposed", [](const Tensor& x) { return x.mT().matmul(x); }, {9, 5}},
      {"four dimensions", [](const Tensor& x) { return x.matmul(x.flip({1}).transpose(2, 3)); }, {3, 9, 5}},
      {"broadcast", [](const Tensor& x) { return x.matmul(x.narrow(1, 0, 1).transpose(2, 3)); }, {3, 9, 5}},
      {"heads",
       [](const Tensor& x) {
         const Tensor heads = x.view({x.size(0), 9, 2, 4}).transpose(1, 2);
         return heads.matmul(heads.transpose(-1, -2))
             .softmax(-1)
             .matmul(heads)
             .transpose(1, 2)
             .reshape({x.size(0), 9, 8});
       },
       {9, 8}},
      {"heads in the batch",
       [](const Tensor& x) {
         const Tensor heads = x.view({x.size(0), 9, 2, 4}).transpose(1, 2).reshape({-1, 9, 4});
         return heads.bmm(heads.transpose(1, 2)).view({x.size(0), 2, 9, 9});
       },
       {9, 8}},
      {"baddbmm", [](const Tensor& x) { return torch::baddbmm(x, x, x); }, {7, 7}},
  };
  for (const NumberCase& c : cases) {
    SCOPED_TRACE(c.name);
    try {
      expect_near(c.body, c.item, 16);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Matmul, WithAConstant) {
  const torch::NoGradGuard no_grad;
  for (const bool right : {true, false}) {
    for (const bool stacked : {false, true}) {
      auto net = std::make_shared<Net>();
      const Tensor weight =
          net->register_parameter("weight", stacked ? torch::randn({3, 6, 6}) : torch::randn({6, 6}));
      net->body = [=](const Tensor& x) { return right ? x.matmul(weight) : weight.matmul(x); };
      const Tensor x = torch::randn({5, 3, 6, 6});
      const runtime::Plan plan = lower(*captured(net, torch::randn({2, 3, 6, 6})));
      runtime::Engine engine(plan);
      EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), 50 * kF32) << listing(plan);
      const runtime::Op expected = right && !stacked ? runtime::Op::linear : runtime::Op::matmul;
      EXPECT_EQ(std::ranges::count(plan.steps, expected, &runtime::Step::op), 1) << listing(plan);
    }
  }
}

TEST(Matmul, ScoresReadTheHeadsWhereTheyLie) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = expect_near(
      [](const Tensor& x) {
        const Tensor heads = x.view({x.size(0), 9, 2, 4}).transpose(1, 2);
        return heads.matmul(heads.transpose(2, 3));
      },
      {9, 8}, 4);
  EXPECT_EQ(plan.steps.size(), 1u) << listing(plan);
}

TEST(Matmul, AttentionOverHeadsCutFromOneLayer) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  for (const bool by_hand : {true, false}) {
    auto net = std::make_shared<Net>();
    auto qkv = net->add("qkv", nn::Linear(8, 24));
    auto out = net->add("out", nn::Linear(8, 8));
    net->body = [=](const Tensor& x) mutable {
      const auto parts = qkv->forward(x).reshape({x.size(0), 9, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
      const Tensor mixed = by_hand ? parts[0].matmul(parts[1].transpose(-2, -1)).softmax(-1).matmul(parts[2])
                                   : at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
      return by_hand ? out->forward(mixed.transpose(1, 2).reshape({x.size(0), 9, 8})) : mixed.flip({2});
    };
    const runtime::Plan plan = lower(*captured(net, torch::randn({2, 9, 8})));
    runtime::Engine engine(plan);
    for (const int64_t batch : {1, 3, 17}) {
      const Tensor x = torch::randn({batch, 9, 8});
      EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), 60 * kF32) << listing(plan);
    }
  }
}

TEST(Matmul, InBf16) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", nn::Linear(8, 8));
  net->body = [=](const Tensor& x) mutable {
    const Tensor y = fc->forward(x);
    return y.matmul(y.transpose(1, 2));
  };
  const Tensor x = torch::randn({3, 5, 8});
  const runtime::Plan plan = lower(*captured(net, x), {.precision = LowerOptions::Precision::bf16});
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), 8 * kBF16) << listing(plan);
}

}  // namespace
}  // namespace ulp::test
