// Types that forward reads from values: under autocast they are those of the values there.

#include "same.h"
#include "ulp/graph/passes/pass.h"

namespace {

using namespace ulp;
using namespace ulp::graph;
using namespace ulp::test;
namespace nn = torch::nn;

struct TypeReader : nn::Module {
  using Middle = std::function<at::Tensor(const at::Tensor& y, const at::Tensor& x)>;
  explicit TypeReader(Middle middle) : middle(std::move(middle)) {
    first = register_module("first", nn::Linear(8, 16));
    second = register_module("second", nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = middle(first(x), x);
    return second(y) * y.sum(1, /*keepdim=*/true);
  }
  Middle middle;
  nn::Linear first{nullptr}, second{nullptr};
};

/// The graph gives the module's bits and type, in fp32 and under autocast to each type. Returns its graph.
std::shared_ptr<GraphModule> follows(const TypeReader::Middle& middle) {
  TypeReader model(middle);
  model.eval();
  const auto graph = ulp::capture(model, {torch::randn({5, 8})});
  std::ostringstream listing;
  listing << graph->graph();
  SCOPED_TRACE(listing.str());
  const at::NoGradGuard no_grad;
  for (const int64_t batch : {1, 7}) {
    const at::Tensor x = torch::randn({batch, 8});
    EXPECT_TRUE(graph->forward(x).equal(model.forward(x)));
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const LowerAutocast autocast(type);
      const at::Tensor want = model.forward(x), got = graph->forward(x);
      EXPECT_EQ(got.scalar_type(), want.scalar_type());
      EXPECT_TRUE(got.equal(want));
    }
  }
  return graph;
}

/// How many arguments of the graph are types of values.
int64_t read_types(const Graph& graph) {
  int64_t count = 0;
  for (const auto& node : graph.nodes())
    count += std::ranges::count(node->args, Argument::Kind::dtype, &Argument::kind);
  return count;
}

TEST(AutocastTypes, ReadFromAValueFollowIt) {
  const std::vector<TypeReader::Middle> middles = {
      [](const at::Tensor& y, const at::Tensor&) { return y.to(torch::kFloat).tanh().to(y.dtype()) + y; },
      [](const at::Tensor& y, const at::Tensor&) {
        return y / 0.9 * torch::full({y.size(0), 1}, 0.9, y.options());
      },
      [](const at::Tensor& y, const at::Tensor&) { return y * torch::ones({16}, y.options()); },
      [](const at::Tensor& y, const at::Tensor&) {
        return torch::softmax(y, -1, torch::kFloat).to(y.dtype());
      },
      [](const at::Tensor& y, const at::Tensor&) { return (y > 0).to(y.dtype()) * y; }};
  for (const TypeReader::Middle& middle : middles) EXPECT_EQ(read_types(follows(middle)->graph()), 1);
}

TEST(AutocastTypes, OfTheModelsOwnStay) {
  EXPECT_EQ(read_types(follows([](const at::Tensor& y, const at::Tensor&) {
                         return torch::softmax(y, -1, torch::kFloat);
                       })->graph()),
            0);
  EXPECT_EQ(read_types(follows([](const at::Tensor& y, const at::Tensor& x) {
                         return y + x.sum(1, true).to(x.dtype());  // an input keeps its type
                       })->graph()),
            0);
}

TEST(AutocastTypes, AreThoseOfFp32InWhatOnlyInfers) {
  const auto module =
      follows([](const at::Tensor& y, const at::Tensor&) { return (y > 0).to(y.dtype()) * y; });
  const auto graph = module->graph().clone();
  strip_training(*graph);
  EXPECT_EQ(read_types(*graph), 0);
  graph->verify();
  std::ostringstream text;
  text << module->graph();
  EXPECT_SAYS(text.str(), "dtype=dtype(%");
}

TEST(AutocastTypes, AreNotReadFromWhatEvalModeMakesAlone) {
  struct Branch : nn::Module {
    Branch() {
      a = register_module("a", nn::Linear(4, 8));
      b = register_module("b", nn::Linear(8, 8));
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = a(x), z = is_training() ? y : b(y);
      return z * torch::ones({8}, y.options());
    }
    nn::Linear a{nullptr}, b{nullptr};
  } model;
  const auto graph = ulp::capture(model, {torch::randn({3, 4})});
  for (const bool training : {true, false}) {
    model.train(training);
    graph->train(training);
    const at::Tensor x = torch::randn({5, 4});
    EXPECT_TRUE(graph->forward(x).equal(model.forward(x)));
  }
}

TEST(AutocastTypes, OfProductsComeBeforeThoseOfOtherOps) {
  TypeReader model([](const at::Tensor& y, const at::Tensor&) {
    const at::Tensor z = torch::layer_norm(y, {16});
    return z.to(torch::kFloat).tanh().to(y.dtype());
  });
  const auto graph = ulp::capture(model, {torch::randn({5, 8})});
  std::ostringstream text;
  text << graph->graph();
  EXPECT_SAYS(text.str(), "dtype=dtype(%addmm)");
}

}  // namespace
