// decompose(): the numbers of LibTorch where they are easily missed, and calls that stay as they are.
#include "ulp/graph/decompose/decompose.h"

#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "same.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using namespace ulp;
using Tensors = std::vector<at::Tensor>;
using WrittenBody = std::function<at::Tensor(const Tensors&)>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Decomposed {
  std::shared_ptr<graph::Graph> graph;
  graph::PassReport report;
};

Decomposed decomposed(const graph::GraphModule& module) {
  const std::shared_ptr<graph::Graph> graph = std::as_const(module).graph().clone();
  graph::PassReport report = graph::decompose(*graph, [](const graph::Node&) { return true; });
  graph->verify();
  return {graph, report};
}

/// Of the same sizes and type, NaN where the other has one, and else within 1e-5 of the largest.
void expect_like(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.scalar_type(), want.scalar_type());
  EXPECT_TRUE(at::allclose(got.to(at::kDouble), want.to(at::kDouble), 1e-5, 1e-5, /*equal_nan=*/true))
      << got << "\n"
      << want;
}

struct DecomposeCase {
  const char* name;
  WrittenBody body;
  Tensors inputs;
};

/// The body's graph before and after; whether a call was written in others.
bool expect_numbers(const DecomposeCase& one) {
  SCOPED_TRACE(one.name);
  torch::nn::Module root;
  root.eval();
  const torch::NoGradGuard no_grad;
  graph::CaptureOptions options;
  options.batch_dims.assign(one.inputs.size(), -1);
  const auto module = graph::capture(
      root, [&](const Tensors& x) { return c10::IValue(one.body(x)); }, one.inputs, options);
  module->eval();
  const Decomposed made = decomposed(*module);
  graph::GraphModule written(made.graph);
  written.eval();
  expect_like(written.forward_all(one.inputs).at(0), one.body(one.inputs));
  return !made.report.changes.empty();
}

at::Tensor complex_of(const at::Tensor& x) {
  return torch::complex(x, x * 2 - 1);
}
at::Tensor both_parts(const at::Tensor& x) {
  return torch::view_as_real(x.resolve_conj());
}

TEST(Decompose, ComplexNumbersBesideRealOnes) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({2, 3, 4}), whole = torch::randint(-5, 5, {2, 3, 4}, at::kLong);
  for (const DecomposeCase& one : std::vector<DecomposeCase>{
           {"a border of numbers",
            [](const Tensors& t) {
              return both_parts(torch::constant_pad_nd(complex_of(t[0]), {1, 2}, 3.0));
            },
            {x}},
           {"cat with a real tensor",
            [](const Tensors& t) {
              return both_parts(torch::cat({complex_of(t[0]), t[0].to(at::kComplexFloat)}, 1));
            },
            {x}},
           {"stack with one",
            [](const Tensors& t) {
              return both_parts(torch::stack({t[0].to(at::kComplexFloat), complex_of(t[0])}, 0));
            },
            {x}},
           {"integers become complex",
            [](const Tensors& t) {
              return both_parts(torch::fft::fft(t[0].to(at::kComplexFloat), std::nullopt, 2));
            },
            {whole}},
           {"integers plus complex numbers",
            [](const Tensors& t) { return both_parts(t[1] + complex_of(t[0])); },
            {x, whole}},
           {"a product of two without imaginary part",
            [](const Tensors& t) {
              return both_parts(t[0].to(at::kComplexFloat) * (t[0] + 1).to(at::kComplexFloat));
            },
            {x}},
           {"a product with one without",
            [](const Tensors& t) { return both_parts(t[0].to(at::kComplexFloat) * complex_of(t[0])); },
            {x}},
           {"times a number, divided by one",
            [](const Tensors& t) { return both_parts(complex_of(t[0]) * 3 / 2); },
            {x}}}) {
    EXPECT_TRUE(expect_numbers(one)) << one.name;
  }
  // What is not written stays right.
  expect_numbers({"times a complex number",
                  [](const Tensors& t) {
                    return both_parts(at::mul(complex_of(t[0]), c10::Scalar(c10::complex<double>(0.5, 2))));
                  },
                  {x}});
  expect_numbers({"a border of a complex number",
                  [](const Tensors& t) {
                    return both_parts(torch::constant_pad_nd(complex_of(t[0]), {1, 2},
                                                             c10::Scalar(c10::complex<double>(1, 2))));
                  },
                  {x}});
}

TEST(Decompose, LengthsAtTheEnds) {
  const at::Tensor ends = torch::tensor({0.0F, -0.0F, 3.0F, -1e30F, 1e-30F, kInf, -kInf, kNan});
  const at::Tensor a = ends.repeat_interleave(8).view({8, 8}), b = ends.repeat({8}).view({8, 8});
  EXPECT_TRUE(expect_numbers({"hypot", [](const Tensors& t) { return torch::hypot(t[0], t[1]); }, {a, b}}));
  EXPECT_TRUE(expect_numbers(
      {"abs", [](const Tensors& t) { return torch::abs(torch::complex(t[0], t[1])); }, {a, b}}));
}

TEST(Decompose, WholeNumbersStayWhole) {
  torch::manual_seed(2);
  const auto whole = [](std::vector<int64_t> sizes) { return torch::randint(-9, 9, sizes, at::kLong); };
  for (const DecomposeCase& one :
       std::vector<DecomposeCase>{{"addmv",
                                   [](const Tensors& t) { return torch::addmv(t[0], t[1], t[2], 3, 2); },
                                   {whole({4}), whole({4, 3}), whole({3})}},
                                  {"addr",
                                   [](const Tensors& t) { return torch::addr(t[0], t[1], t[2], 2, -1); },
                                   {whole({4, 3}), whole({4}), whole({3})}},
                                  {"addbmm",
                                   [](const Tensors& t) { return torch::addbmm(t[0], t[1], t[2], 1, 2); },
                                   {whole({4, 2}), whole({5, 4, 3}), whole({5, 3, 2})}},
                                  {"baddbmm",
                                   [](const Tensors& t) { return torch::baddbmm(t[0], t[1], t[2], 2, 3); },
                                   {whole({5, 4, 2}), whole({5, 4, 3}), whole({5, 3, 2})}},
                                  {"index_add",
                                   [](const Tensors& t) {
                                     return torch::index_add(t[0], 1, torch::tensor({2, 0, 2}), t[1], 3);
                                   },
                                   {whole({4, 3}), whole({4, 3})}}}) {
    EXPECT_TRUE(expect_numbers(one)) << one.name;
  }
}

/// A cache that is written at a place that moves on.
struct MovingCache : torch::nn::Module {
  MovingCache() {
    cache = register_buffer("cache", torch::zeros({4, 3}));
    place = register_buffer("place", torch::zeros({1}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor next = torch::index_copy(cache, 0, place, x.sum(0, /*keepdim=*/true));
    const at::Tensor filled = torch::index_fill(next, 0, place, 7);
    const at::Tensor put = torch::index_put(filled, {place}, x.mean(0, /*keepdim=*/true));
    cache.copy_(next);
    place.copy_((place + 1) % 4);
    return next + filled * 10 + put * 100;
  }
  at::Tensor cache, place;
};

TEST(Decompose, PlacesInBuffersThatForwardWritesAreNoConstants) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  MovingCache model, twin;
  model.eval();
  twin.eval();
  const auto module = ulp::capture(model, {torch::randn({2, 3})});
  module->eval();
  graph::GraphModule written(decomposed(*module).graph);
  written.eval();
  for (int run = 0; run < 5; ++run) {
    const at::Tensor x = torch::randn({2, 3});
    expect_like(written.forward_all({x}).at(0), twin.forward(x));
  }
}

TEST(Decompose, CallsUnderAutocastOfTheModelsOwnStay) {
  torch::manual_seed(4);
  const Tensors inputs = {torch::randn({4, 3}), torch::randn({4, 3, 2}), torch::randn({4, 2, 3})};
  const WrittenBody product = [](const Tensors& t) {
    return torch::addbmm(t[0].narrow(0, 0, 3), t[1], t[2]);
  };
  EXPECT_TRUE(expect_numbers({"addbmm", product, inputs}));
  EXPECT_FALSE(expect_numbers({"addbmm under autocast",
                               [&](const Tensors& t) {
                                 const test::LowerAutocast guard(at::kBFloat16);
                                 return product(t);
                               },
                               inputs}));
}

}  // namespace
