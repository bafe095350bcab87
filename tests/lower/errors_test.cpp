// What cannot be lowered is named, all of it at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {
namespace {

using at::Tensor;

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

std::string lowering_error(const std::function<at::Tensor(const at::Tensor&)>& body,
                           const at::Tensor& example) {
  auto net = std::make_shared<Net>();
  net->body = body;
  auto module = captured(net, example);
  return error_of([&] { lower(*module); });
}

TEST(LowerErrors, NamesOpNodeAndWhatIsSupported) {
  expect_words(lowering_error([](const at::Tensor& x) { return torch::erfinv(x); }, torch::randn({2, 5})),
               {"[lower.lower]", "aten::erfinv", "1 node", "lower_partitioned"});
}

TEST(LowerErrors, NamesEveryNodeOnce) {
  const std::string text = lowering_error(
      [](const at::Tensor& x) { return torch::relu(torch::erfinv(torch::lgamma(x))); }, torch::randn({2, 5}));
  expect_words(text, {"aten::erfinv", "aten::lgamma", "2 nodes"});
}

TEST(LowerErrors, HasACodeAndThePlaceOfEachKindOfNode) {
  auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) { return torch::relu(torch::erfinv(torch::lgamma(torch::erfinv(x)))); };
  const auto module = captured(net, torch::randn({2, 5}));
  try {
    lower(*module);
    FAIL() << "it was lowered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported_op);
    EXPECT_EQ(error.op(), "aten::erfinv");
    ASSERT_EQ(error.places().size(), 2u) << error.what();
    EXPECT_EQ(error.places()[1].op, "aten::lgamma");
    for (const ErrorPlace& place : error.places()) {
      const auto& nodes = module->graph().nodes();
      const auto named = [&](const auto& node) { return node->name() == place.node; };
      const auto node = std::find_if(nodes.begin(), nodes.end(), named);
      ASSERT_NE(node, nodes.end()) << place.node;
      EXPECT_EQ((*node)->target(), place.op);
      EXPECT_SAYS(std::string(error.what()), place.op + " '" + place.node + "'");
    }
  }
}

TEST(LowerErrors, WrongInputsHaveTheCodeOfShapes) {
  auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) { return torch::relu(x); };
  const auto module = captured(net, torch::randn({2, 5}));
  runtime::Engine engine(lower(*module));
  for (const auto& wrong : {torch::randn({2, 4}), torch::randn({5})}) {
    EXPECT_EQ(code_of([&] { module->forward(wrong); }), ErrorCode::bad_shape) << wrong.sizes();
    EXPECT_EQ(code_of([&] { run_engine(engine, wrong); }), ErrorCode::bad_shape) << wrong.sizes();
  }
  EXPECT_EQ(code_of([&] { module->forward_all({}); }), ErrorCode::bad_shape);
  EXPECT_EQ(code_of([&] { runtime::Engine(lower(*module), {.isa = "none"}); }), ErrorCode::bad_option);
  EXPECT_EQ(code_of([&] { runtime::Engine(lower(*module), {.error_budget = 2}); }), ErrorCode::bad_option);
}

TEST(LowerErrors, NamesTheModule) {
  auto net = std::make_shared<Net>();
  auto pairs = net->add("pairs", torch::nn::Bilinear(torch::nn::BilinearOptions(3, 3, 4)));
  net->body = [=](const at::Tensor& x) mutable { return pairs->forward(x, x); };
  auto module = captured(net, torch::randn({2, 3}));
  expect_words(error_of([&] { lower(*module); }), {"aten::bilinear", "in pairs", "no lowering"});
}

TEST(LowerErrors, StringPadding) {
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 2).padding(torch::kSame)));
  net->body = [=](const at::Tensor& x) mutable { return conv->forward(x); };
  auto module = captured(net, torch::randn({2, 3, 4, 4}));
  expect_words(error_of([&] { lower(*module); }), {"padding", "conv"});
}

TEST(LowerErrors, SoftmaxOverTheBatch) {
  expect_words(
      lowering_error([](const at::Tensor& x) { return torch::softmax(x, 0); }, torch::randn({2, 5, 3})),
      {"softmax", "batch"});
}

TEST(LowerErrors, ReshapeThatMovesTheBatch) {
  expect_words(lowering_error(
                   [](const at::Tensor& x) {
                     return x.view({4, -1});
                   },
                   torch::randn({2, 3, 4})),
               {"[lower.lower]", "aten::view", "expected it to leave the batch"});
}

TEST(LowerErrors, IntegersAreIdsAndNothingElse) {
  const auto relu = [](const at::Tensor& x) { return torch::relu(x); };
  expect_words(lowering_error(relu, torch::ones({2, 3}, torch::kLong)),
               {"aten::relu", "integers of 'input'"});
  expect_words(lowering_error(relu, torch::ones({2, 3}, torch::kShort)),
               {"float32, int32, int64, uint8 or bool", "Short"});
}

TEST(LowerErrors, Float64IsRefusedWithWhatThereIs) {
  const Tensor scale = torch::rand({5}, torch::kDouble);
  const std::vector<Body> bodies = {
      [](const Tensor& x) { return x.to(torch::kDouble).square().to(torch::kFloat); },
      [=](const Tensor& x) { return (x * scale).sum(1); },
      [](const Tensor& x) { return x.softmax(1, torch::kDouble).to(torch::kFloat); },
  };
  for (const Body& body : bodies) {
    expect_words(lowering_error(body, torch::randn({2, 5})),
                 {"float64", "f32 and bf16", ".to(torch::kFloat)"});
    const auto module = captured_body(body, torch::randn({2, 5}));
    PartitionedModel pieces = lower_partitioned(*module);
    const Tensor x = torch::randn({3, 5}), expected = module->forward(x), got = pieces.run({x}).at(0);
    EXPECT_EQ(got.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(got.equal(expected));
  }
}

TEST(LowerErrors, IntegersThatF32DoesNotHold) {
  const Tensor large = torch::tensor({1 << 25, 1, 2}, torch::kLong);
  const std::vector<Body> bodies = {
      [](const Tensor& ids) { return ids + 16777217; },
      [=](const Tensor& ids) { return ids * large; },
      [](const Tensor& ids) { return (ids == 100000001).to(torch::kFloat); },
  };
  for (const Body& body : bodies) {
    expect_words(lowering_error(body, torch::ones({2, 3}, torch::kLong)), {"at most 2^24"});
    const auto module = captured_body(body, torch::ones({2, 3}, torch::kLong));
    PartitionedModel pieces = lower_partitioned(*module);
    const Tensor ids = torch::tensor({{100000001, 5, 7}}, torch::kLong);
    EXPECT_TRUE(pieces.run({ids}).at(0).equal(module->forward(ids)));
  }
  const auto fits = captured_body([](const Tensor& ids) { return (ids + 16777216) * 1e9; },
                                  torch::ones({2, 3}, torch::kLong));
  EXPECT_NO_THROW(lower(*fits));
}

// Those that come when the engine runs: counted and compared they have to be exact, cast to floats they are
// rounded.
TEST(LowerErrors, IntegersOfARunThatF32DoesNotHold) {
  const Tensor example = torch::ones({2, 3}, torch::kLong);
  const Tensor most = torch::tensor({{16777216, -16777216, 5}, {1, 2, 3}}, torch::kLong),
               beyond = most.clone();
  beyond[1][1] = 16777217;
  const std::vector<Body> counting = {
      [](const Tensor& ids) { return (ids > ids.slice(1, 0, 1)).to(torch::kFloat); },
      [](const Tensor& ids) { return ids % 7; },
      [](const Tensor& ids) { return ids.slice(1, 0, 2).clamp_min(3); },
      [](const Tensor& ids) { return ids.scatter(1, ids.slice(1, 0, 1).clamp(0, 2), 7); }};
  for (const Body& body : counting) {
    const auto module = captured_body(body, example);
    runtime::Engine engine(lower(*module));
    EXPECT_TRUE(run_engine(engine, most).to(torch::kLong).equal(module->forward(most).to(torch::kLong)));
    expect_words(error_of([&] { run_engine(engine, beyond); }), {"16777216", "16777217", "element"});
  }
  const std::vector<Body> rounding = {
      [](const Tensor& ids) { return ids.to(torch::kFloat) * 0.5; },
      [](const Tensor& ids) { return (ids > 5).to(torch::kFloat); },
      [](const Tensor& ids) { return ids.slice(1, 1, 3).eq(3).to(torch::kFloat); },
      [](const Tensor& ids) { return ids.to(torch::kFloat) * ids.ne(16777215).to(torch::kFloat); }};
  for (const Body& body : rounding) {
    const auto module = captured_body(body, example);
    runtime::Engine engine(lower(*module));
    EXPECT_TRUE(run_engine(engine, beyond).equal(module->forward(beyond)));
  }
}

TEST(LowerErrors, WrongInputSizesForAnEngine) {
  auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) { return torch::relu(x); };
  runtime::Engine engine(lower(*captured(net, torch::randn({2, 5}))));
  expect_words(error_of([&] { run_engine(engine, torch::randn({2, 6})); }), {"[2, 5]", "[2, 6]"});
  expect_words(error_of([&] { run_engine_all(engine, {}); }), {"1 inputs", "got 0"});
}

TEST(LowerErrors, InputsOfAnEngineHaveOneBatchSize) {
  runtime::Plan plan;
  for (const char* name : {"x", "y", "sum"})
    plan.tensors.push_back({.name = name, .shape = {runtime::kBatch, 4}});
  plan.steps.push_back({.op = runtime::Op::add, .name = "sum", .inputs = {0, 1}, .output = 2});
  plan.inputs = {0, 1};
  plan.outputs = {2};
  runtime::Engine engine(plan);
  const at::Tensor five = torch::ones({5, 4});
  EXPECT_TRUE(torch::equal(run_engine_all(engine, {five, five}).at(0), 2 * five));
  expect_words(error_of([&] {
                 run_engine_all(engine, {five, torch::ones({1, 4})});
               }),
               {"one batch size", "5 in 'x'", "1 in 'y'"});
  expect_words(error_of([&] { run_engine_all(engine, {torch::ones({1, 4}), five}); }), {"one batch size"});
}

}  // namespace
}  // namespace ulp::test
