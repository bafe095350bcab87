// Quantization and lowering read one matcher: the chains whose ends quant observes are the steps that lower
// makes, of the float graph and of the quantized one.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "int8_support.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

using at::Tensor;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

/// Every network of this file: four convolutions, a pointwise one of stride 1 among them, and a linear layer.
struct Layers {
  std::shared_ptr<Net> net = std::make_shared<Net>();
  Conv2d one = net->add("one", Conv2d(Conv2dOptions(4, 4, 3).padding(1)));
  Conv2d two = net->add("two", Conv2d(Conv2dOptions(4, 4, 3).padding(1)));
  Conv2d three = net->add("three", Conv2d(Conv2dOptions(4, 4, 3).padding(1)));
  Conv2d down = net->add("down", Conv2d(Conv2dOptions(4, 4, 1)));
  torch::nn::BatchNorm2d norm = net->add("norm", torch::nn::BatchNorm2d(4));
  torch::nn::Linear fc = net->add("fc", torch::nn::Linear(256, 5));
};

using Formula = Tensor (*)(Layers&, const Tensor&);

struct ChainCase {
  const char* name;
  Formula body;
  std::vector<std::string> chains;
};

const std::vector<ChainCase>& chain_cases() {
  static const std::vector<ChainCase> all = {
      {"relu", [](Layers& l, const Tensor& x) { return torch::relu(l.norm(l.one(x))); }, {"one + relu"}},
      {"relu6",
       [](Layers& l, const Tensor& x) { return torch::nn::functional::relu6(l.one(x)); },
       {"one + relu6"}},
      {"hardtanh",
       [](Layers& l, const Tensor& x) { return torch::hardtanh(l.one(x), 0, 6); },
       {"one + relu6"}},
      {"clamp", [](Layers& l, const Tensor& x) { return torch::clamp(l.one(x), 0, 6); }, {"one + relu6"}},
      {"clamp_min", [](Layers& l, const Tensor& x) { return torch::clamp_min(l.one(x), 0); }, {"one + relu"}},
      {"shortcut",
       [](Layers& l, const Tensor& x) {
         const Tensor y = torch::relu(l.one(x));
         return torch::clamp(l.two(y) + y, 0, 6);
       },
       {"one + relu", "two + add + relu6"}},
      {"projection",
       [](Layers& l, const Tensor& x) {
         const Tensor y = l.two(torch::relu(l.one(x)));
         return torch::relu(y + l.down(x));
       },
       {"one + relu", "two + add + relu"}},
      {"projection first",
       [](Layers& l, const Tensor& x) {
         const Tensor y = l.down(x);
         return torch::relu(l.two(torch::relu(l.one(x))) + y);
       },
       {"down + add + relu", "one + relu"}},
      {"shared result",
       [](Layers& l, const Tensor& x) {
         const Tensor y = l.one(x);
         return l.two(torch::relu(y)) + y;
       },
       {"two + add"}},
      {"sum of sums",
       [](Layers& l, const Tensor& x) {
         const Tensor a = l.one(x), b = l.two(x), sum = a + b, c = l.three(x);
         return torch::relu(sum + c);
       },
       {"one + add", "three + add + relu"}},
      {"sum of poolings",
       [](Layers& l, const Tensor& x) {
         const Tensor y = l.one(x);
         return torch::relu(torch::max_pool2d(y, 2) + torch::max_pool2d(l.two(y), 2));
       },
       {"add + relu"}},
      {"linear",
       [](Layers& l, const Tensor& x) { return torch::relu(l.fc(torch::relu(l.one(x)).flatten(1))); },
       {"fc + relu", "one + relu"}}};
  return all;
}

/// The chains of more than one node, without the words behind them.
std::vector<std::string> chains(const graph::PassReport& report, const std::string& words) {
  std::vector<std::string> found;
  for (const std::string& line : report.changes) {
    if (line.find(" + ") == std::string::npos) continue;
    EXPECT_TRUE(line.ends_with(words)) << line;
    found.push_back(line.substr(0, line.size() - words.size()));
  }
  std::ranges::sort(found);
  return found;
}

class Agreement : public testing::TestWithParam<size_t> {};

TEST_P(Agreement, PlacementAndLoweringFindTheSameChains) {
  const ChainCase& one = chain_cases()[GetParam()];
  SCOPED_TRACE(one.name);
  torch::manual_seed(3);
  const auto layers = std::make_shared<Layers>();
  layers->net->body = [&one, l = layers.get()](const Tensor& x) { return one.body(*l, x); };
  const Tensor x = torch::randn({2, 4, 8, 8}) * 4;
  const auto model = captured(layers->net, x);

  const auto prepared = quant::prepare(model, quant::Recipe::x86_int8());
  prepared->forward({x});
  EXPECT_EQ(chains(prepared->report(), " quantized"), one.chains);

  graph::PassReport of_float, of_codes;
  const runtime::Plan float_plan = lower(*model, {}, &of_float);
  EXPECT_EQ(chains(of_float, " made one step"), one.chains);
  runtime::Engine engine(float_plan);
  EXPECT_LT(relative_error(run_engine(engine, x), model->forward(x)), rounding_bound(float_plan, kF32, kF32));

  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized, {}, &of_codes);
  EXPECT_EQ(chains(of_codes, " made one step"), one.chains);
  expect_steps_as_graph(*quantized, plan, x);
}

INSTANTIATE_TEST_SUITE_P(Graphs, Agreement, testing::Range<size_t>(0, chain_cases().size()));

TEST(LowerReport, HoldsThePassesAsPartsAlsoWhenLoweringFails) {
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", Conv2d(Conv2dOptions(3, 4, 1)));
  auto norm = net->add("norm", torch::nn::BatchNorm2d(4));
  net->body = [=](const Tensor& x) mutable { return torch::erfinv(torch::relu(norm(conv(x)))); };
  graph::PassReport report;
  EXPECT_ERROR(lower(*captured(net, torch::randn({2, 3, 4, 4})), {}, &report), "aten::erfinv 'erfinv'");
  EXPECT_EQ(report.pass, "lower");
  EXPECT_EQ(report.changes, std::vector<std::string>{"conv + relu made one step"});
  const auto folding =
      std::ranges::find(report.parts, std::string("fold_batch_norm"), &graph::PassReport::pass);
  ASSERT_NE(folding, report.parts.end());
  EXPECT_EQ(folding->changes, std::vector<std::string>{"conv -> norm folded"});
}

}  // namespace
}  // namespace ulp::test
