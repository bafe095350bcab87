// What cannot be lowered is named, all of it at once.
#include <gtest/gtest.h>

#include "error_of.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

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
               {"[lower.lower]", "aten::erfinv", "1 node", "lower_in_pieces"});
}

TEST(LowerErrors, NamesEveryNodeOnce) {
  const std::string text = lowering_error(
      [](const at::Tensor& x) { return torch::relu(torch::erfinv(torch::lgamma(x))); }, torch::randn({2, 5}));
  expect_words(text, {"aten::erfinv", "aten::lgamma", "2 nodes"});
}

TEST(LowerErrors, NamesTheModule) {
  auto net = std::make_shared<Net>();
  auto up = net->add("up", torch::nn::ConvTranspose1d(torch::nn::ConvTranspose1dOptions(3, 4, 2).stride(2)));
  net->body = [=](const at::Tensor& x) mutable { return up->forward(x); };
  auto module = captured(net, torch::randn({2, 3, 4}));
  expect_words(error_of([&] { lower(*module); }), {"aten::conv_transpose1d", "in up", "of images only"});
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
                     return x.view({-1, 4});
                   },
                   torch::randn({2, 3, 4})),
               {"[lower.lower]", "aten::view", "the batch to stay dimension 0"});
}

TEST(LowerErrors, BatchNormWithNothingToFoldInto) {
  auto net = std::make_shared<Net>();
  auto norm = net->add("norm", torch::nn::BatchNorm1d(3));
  net->body = [=](const at::Tensor& x) mutable { return norm->forward(x); };
  auto module = captured(net, torch::randn({2, 3}));
  expect_words(error_of([&] { lower(*module); }), {"aten::batch_norm", "norm", "behind a linear layer"});
}

TEST(LowerErrors, IntegersAreIdsAndNothingElse) {
  const auto relu = [](const at::Tensor& x) { return torch::relu(x); };
  expect_words(lowering_error(relu, torch::ones({2, 3}, torch::kLong)),
               {"aten::relu", "integers of 'input'"});
  expect_words(lowering_error(relu, torch::ones({2, 3}, torch::kShort)), {"f32, i32 or i64", "Short"});
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
