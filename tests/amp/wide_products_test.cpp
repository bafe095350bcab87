#include "ulp/amp/autocast/wide_products.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "op_samples.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using at::Tensor;
using c10::IValue;
using ulp::test::Inputs;

c10::OperatorHandle operator_named(const std::string& full) {
  const size_t dot = full.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      full.substr(0, dot).c_str(), dot == std::string::npos ? "" : full.substr(dot + 1).c_str());
}

/// The tensors of half type among the arguments.
std::vector<Tensor> halves(const std::vector<IValue>& arguments) {
  std::vector<Tensor> found;
  for (const IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined() && argument.toTensor().is_floating_point())
      found.push_back(argument.toTensor());
  }
  return found;
}

/// The same arguments with leaves of `type` that want gradients.
std::vector<IValue> leaves_of(const std::vector<IValue>& arguments, at::ScalarType type) {
  std::vector<IValue> made;
  for (const IValue& argument : arguments) {
    const bool half =
        argument.isTensor() && argument.toTensor().defined() && argument.toTensor().is_floating_point();
    made.push_back(half ? IValue(argument.toTensor().detach().to(type, false, true).requires_grad_())
                        : argument);
  }
  return made;
}

/// The op in fp32, by LibTorch alone.
Tensor reference(const c10::OperatorHandle& op, std::vector<IValue> stack) {
  op.callBoxed(stack);
  return stack.at(0).toTensor();
}

Tensor widened(const c10::OperatorHandle& op, std::vector<IValue> stack) {
  EXPECT_TRUE(ulp::amp::wide_product(op, stack));
  EXPECT_EQ(stack.size(), 1u);
  return stack.at(0).toTensor();
}

/// Equal up to the rounding of sums that are taken in another order: one place of bf16.
void expect_near(const Tensor& given, const Tensor& exact) {
  ASSERT_EQ(given.scalar_type(), at::kBFloat16);
  ASSERT_EQ(given.sizes(), exact.sizes());
  const Tensor bound = exact.abs() * 0x1p-7 + 1e-6;
  EXPECT_TRUE(((given.to(at::kFloat) - exact).abs() <= bound).all().item<bool>()) << given << exact;
}

class WideProducts : public testing::TestWithParam<const char*> {};

TEST_P(WideProducts, AreThoseOfFp32RoundedOnceAndSoAreGradients) {
  torch::manual_seed(3);
  const auto op = operator_named(GetParam());
  std::vector<IValue> arguments = ulp::test::sample_arguments(GetParam(), Inputs::bf16);
  for (const Tensor& tensor : halves(arguments)) tensor.copy_(torch::randn(tensor.sizes()));
  const std::vector<IValue> low = leaves_of(arguments, at::kBFloat16),
                            high = leaves_of(arguments, at::kFloat);
  const Tensor y = widened(op, low), exact = reference(op, high);
  EXPECT_TRUE(torch::equal(y, exact.to(at::kBFloat16)));
  const Tensor gradient = torch::randn(y.sizes()).to(at::kBFloat16);
  y.backward(gradient);
  exact.backward(gradient.to(at::kFloat));
  const std::vector<Tensor> ours = halves(low), theirs = halves(high);
  ASSERT_GE(ours.size(), 2u);
  for (size_t i = 0; i < ours.size(); ++i) expect_near(ours[i].grad(), theirs[i].grad());
}

/// Attention on CPUs has no second derivative in LibTorch.
bool differentiates_twice(const std::string& op) {
  return op != "aten::scaled_dot_product_attention";
}

TEST_P(WideProducts, HaveSecondDerivatives) {
  if (!differentiates_twice(GetParam())) return;
  torch::manual_seed(8);
  const auto op = operator_named(GetParam());
  std::vector<IValue> arguments = ulp::test::sample_arguments(GetParam(), Inputs::bf16);
  for (const Tensor& tensor : halves(arguments)) tensor.copy_(torch::randn(tensor.sizes()));
  const auto second = [&](at::ScalarType type, const auto& call) {
    const std::vector<IValue> leaves = leaves_of(leaves_of(arguments, at::kBFloat16), type);
    const std::vector<Tensor> sources = halves(leaves);
    const Tensor y = call(op, leaves);
    const auto first = torch::autograd::grad({y.pow(2).sum()}, sources, {}, true, true);
    Tensor sum = torch::zeros({}, type);
    for (const Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
    return torch::autograd::grad({sum}, sources);
  };
  const auto ours = second(at::kBFloat16, widened), theirs = second(at::kFloat, reference);
  for (size_t i = 0; i < ours.size(); ++i) {
    // Some eight roundings to bf16 lie on the way, each of a relative 2^-9 of numbers that partly cancel.
    const double scale = theirs[i].abs().max().item<double>();
    EXPECT_LE((ours[i].to(at::kFloat) - theirs[i]).abs().max().item<double>(), 0x1p-4 * scale) << i;
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = std::string(info.param).substr(6);
  for (char& letter : name) letter = letter == '.' ? '_' : letter;
  return name;
}
INSTANTIATE_TEST_SUITE_P(Ops, WideProducts,
                         testing::ValuesIn(ulp::amp::wide_products().begin(),
                                           ulp::amp::wide_products().end()),
                         name_of);

TEST(WideProduct, ShapesOfMatrixProducts) {
  torch::manual_seed(4);
  const auto op = operator_named("aten::matmul");
  const std::pair<std::vector<int64_t>, std::vector<int64_t>> shapes[] = {{{3}, {3}},
                                                                          {{3}, {3, 4}},
                                                                          {{2, 3}, {3}},
                                                                          {{5, 2, 3}, {3, 4}},
                                                                          {{2, 3}, {5, 3, 4}},
                                                                          {{5, 2, 3}, {3}},
                                                                          {{5, 1, 2, 3}, {6, 3, 4}},
                                                                          {{1, 2, 3}, {5, 3, 4}},
                                                                          {{0, 2, 3}, {3, 4}}};
  for (const auto& [a, b] : shapes) {
    const std::vector<IValue> given = {torch::randn(a), torch::randn(b)};
    const std::vector<IValue> low = leaves_of(leaves_of(given, at::kBFloat16), at::kBFloat16),
                              high = leaves_of(low, at::kFloat);
    const Tensor y = widened(op, low), exact = reference(op, high);
    expect_near(y.detach(), exact.detach());
    y.sum().backward();
    exact.sum().backward();
    for (size_t i = 0; i < 2; ++i) expect_near(low[i].toTensor().grad(), high[i].toTensor().grad());
  }
}

TEST(WideProduct, ConvolutionsOfEveryKind) {
  torch::manual_seed(5);
  const auto op = operator_named("aten::conv2d");
  const auto same = operator_named("aten::conv2d.padding");
  const Tensor x = torch::randn({2, 4, 9, 7}), weight = torch::randn({6, 2, 3, 2});
  const std::vector<int64_t> one = {1}, strides = {2, 1}, pads = {1, 2}, dilations = {1, 2};
  const std::pair<c10::OperatorHandle, std::vector<IValue>> calls[] = {
      {op, {x, weight, torch::randn({6}), strides, pads, dilations, int64_t{2}}},
      {op, {x.to(at::MemoryFormat::ChannelsLast), weight, IValue(), one, one, one, int64_t{2}}},
      {op, {x[0], weight, torch::randn({6}), one, one, one, int64_t{2}}},
      {same, {x, weight, torch::randn({6}), one, "same", dilations, int64_t{2}}},
      {same, {x, weight, IValue(), one, "valid", one, int64_t{2}}}};
  for (const auto& [called, given] : calls) {
    const std::vector<IValue> low = leaves_of(given, at::kBFloat16), high = leaves_of(low, at::kFloat);
    const Tensor y = widened(called, low), exact = reference(called, high);
    EXPECT_TRUE(torch::equal(y, exact.to(at::kBFloat16)));
    EXPECT_EQ(y.is_contiguous(), exact.is_contiguous());
    const Tensor gradient = torch::randn(y.sizes()).to(at::kBFloat16);
    y.backward(gradient);
    exact.backward(gradient.to(at::kFloat));
    for (size_t i = 0; i < halves(low).size(); ++i)
      expect_near(halves(low)[i].grad(), halves(high)[i].grad());
  }
}

TEST(WideProduct, IsLeftToLibTorchWhereItIsAnother) {
  const Tensor half = torch::ones({2, 2}, at::kBFloat16), full = torch::ones({2, 2});
  const auto refused = [](const char* op, std::vector<IValue> stack) {
    const size_t count = stack.size();
    EXPECT_FALSE(ulp::amp::wide_product(operator_named(op), stack));
    EXPECT_EQ(stack.size(), count);
  };
  refused("aten::mm", {full, full});
  refused("aten::mm", {half, full});
  refused("aten::mm", {half, half.to(at::kHalf)});
  refused("aten::mm", {half, half.to(at::kComplexFloat)});
  refused("aten::mm", {half, half.to(at::kLong)});
  refused("aten::mul.Tensor", {half, half});
  const Tensor q = half.view({1, 1, 2, 2});
  refused("aten::scaled_dot_product_attention", {q, q, q, IValue(), 0.5, false, IValue(), false});
}

/// How often LibTorch's mm runs in `work`.
int count_products(const std::function<void()>& work) {
  static int products;
  products = 0;
  const auto callback = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        products += std::string(call.name()) == "aten::mm";
        return nullptr;
      }));
  work();
  at::removeCallback(callback);
  return products;
}

TEST(WideProduct, ComputesTheGradientsThatAreAskedFor) {
  const auto linear = operator_named("aten::linear");
  const Tensor x = torch::randn({2, 3}).to(at::kBFloat16).requires_grad_(),
               weight = torch::randn({4, 3}).to(at::kBFloat16);
  Tensor y = widened(linear, {x, weight, IValue()}).sum();
  EXPECT_EQ(count_products([&] { y.backward(); }), 1) << "the weight is frozen";
  weight.requires_grad_();
  y = widened(linear, {x, weight, IValue()}).sum();
  EXPECT_EQ(count_products([&] { torch::autograd::grad({y}, {x}, {}, true); }), 1);
  EXPECT_EQ(count_products([&] { y.backward(); }), 2);
}

TEST(WideProduct, KeepsWhatGradientsNeedAndNoMore) {
  const auto linear = operator_named("aten::linear");
  const Tensor frozen = torch::randn({4, 3}).to(at::kBFloat16), weight = frozen.clone().requires_grad_();
  const Tensor input = torch::randn({2, 3}).to(at::kBFloat16), x = input.clone().requires_grad_();
  Tensor h = x * 1;
  Tensor y = widened(linear, {h, frozen, IValue()}).sum();
  h.relu_();  // the frozen weight's gradient alone would need it
  y.backward();
  y = widened(linear, {input, weight, IValue()}).sum();
  {
    const at::NoGradGuard update;
    weight.zero_();  // the input's gradient alone would need it
  }
  y.backward();
  h = x * 1;
  y = widened(linear, {h, weight, IValue()}).sum();
  h.relu_();
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(WideProduct, MasksMayChangeBeforeTheBackwardPass) {
  const auto attention = operator_named("aten::scaled_dot_product_attention");
  const Tensor q = torch::randn({1, 2, 4, 8}).to(at::kBFloat16).requires_grad_();
  const auto slope = [&](bool change) {
    const Tensor mask = torch::ones({4, 4}, at::kBool).tril();
    const Tensor y = widened(attention, {q, q, q, mask, 0.0, false, IValue(), false});
    if (change) mask.fill_(true);
    return torch::autograd::grad({y.pow(2).sum()}, {q}).at(0);
  };
  EXPECT_TRUE(torch::equal(slope(true), slope(false)));
}

TEST(WideProduct, ThrowsWhereTheOpDoes) {
  const auto half = [](std::vector<int64_t> sizes) { return torch::ones(sizes, at::kBFloat16); };
  const auto expect_throw = [](const char* op, std::vector<IValue> stack) {
    EXPECT_THROW(ulp::amp::wide_product(operator_named(op), stack), c10::Error) << op;
  };
  const std::vector<int64_t> one = {1}, none = {0};
  expect_throw("aten::mm", {half({2, 3}), half({5, 3, 4})});
  expect_throw("aten::bmm", {half({1, 2, 3}), half({5, 3, 4})});
  expect_throw("aten::addmm", {half({2, 4}), half({5, 2, 3}), half({5, 3, 4}), 1, 1});
  expect_throw("aten::baddbmm", {half({2, 4}), half({2, 3}), half({3, 4}), 1, 1});
  expect_throw("aten::conv1d",
               {half({1, 2, 5, 5}), half({2, 2, 3, 3}), IValue(), one, none, one, int64_t{1}});
}

TEST(WideProduct, ShapesWithoutElementsHaveGradients) {
  const Tensor a = torch::ones({5, 2, 0}, at::kBFloat16).requires_grad_(),
               b = torch::ones({0, 4}, at::kBFloat16).requires_grad_();
  const Tensor y = widened(operator_named("aten::matmul"), {a, b});
  EXPECT_TRUE(torch::equal(y, torch::zeros({5, 2, 4}, at::kBFloat16)));
  y.sum().backward();
  EXPECT_EQ(a.grad().sizes(), a.sizes());
  EXPECT_EQ(b.grad().sizes(), b.sizes());
}

// On a processor with the instructions LibTorch computes; to the same bound.
TEST(WideProduct, IsWhatGuardsComputeWhereInstructionsAreMissing) {
  torch::manual_seed(6);
  const Tensor x = torch::randn({3, 8}).to(at::kBFloat16), weight = torch::randn({5, 8}).to(at::kBFloat16);
  const Tensor exact = torch::linear(x.to(at::kFloat), weight.to(at::kFloat));
  {
    const ulp::amp::Autocast guard(at::kCPU, at::kBFloat16);
    expect_near(torch::linear(x.to(at::kFloat), weight.to(at::kFloat)), exact);
  }
  const auto stored = ulp::amp::autocast_for(ulp::amp::find_precision("O2:bf16"), at::kCPU);
  expect_near(torch::linear(x, weight), exact);
  EXPECT_EQ(torch::linear(x.to(at::kFloat), weight.to(at::kFloat)).scalar_type(), at::kFloat);
  EXPECT_THROW(torch::linear(x, weight.to(at::kFloat)), c10::Error);
}

TEST(WideProduct, FollowsTheSwitchesOfLibTorchInsideAGuard) {
  const Tensor x = torch::rand({2, 3}) + 0x1p-12, weight = torch::rand({4, 3}) + 0x1p-12;
  const ulp::amp::Autocast guard(at::kCPU, at::kBFloat16);
  EXPECT_EQ(torch::linear(x, weight).scalar_type(), at::kBFloat16);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  EXPECT_EQ(torch::linear(x, weight).scalar_type(), at::kHalf);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(torch::linear(x, weight).scalar_type(), at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

struct FullIsland : torch::nn::Module {
  torch::nn::Linear inner{3, 4};
  FullIsland() { register_module("inner", inner); }
  at::Tensor forward(const at::Tensor& x) {
    const ulp::amp::Autocast off(at::kCPU, at::kBFloat16, false);
    return inner(x.to(at::kFloat));
  }
};

TEST(WideProduct, CapturedModelsKeepTheirIslandsOfFp32UnderAGuard) {
  const auto model = std::make_shared<FullIsland>();
  const Tensor x = torch::rand({2, 3});
  const Tensor exact = model->forward(x);
  const auto captured = [&] {
    const ulp::amp::Autocast guard(at::kCPU, at::kBFloat16);
    return ulp::capture(*model, {x});
  }();
  const ulp::amp::Autocast guard(at::kCPU, at::kBFloat16);
  EXPECT_TRUE(torch::equal(captured->forward({x}), exact));
}

struct WideGuarded : torch::nn::Module {
  torch::nn::Linear first{8, 16}, last{16, 4};
  torch::nn::Conv1d conv{torch::nn::Conv1dOptions(1, 2, 3)};
  WideGuarded() {
    register_module("first", first);
    register_module("last", last);
    register_module("conv", conv);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y;
    {
      const ulp::amp::Autocast guard(at::kCPU, at::kBFloat16);
      y = first(x).relu();
      y = at::mm(y, y.t());
      y = conv(y.unsqueeze(1)).flatten(1);
    }
    return y.to(at::kFloat) * 2;
  }
};

TEST(WideProduct, GuardsInsideOfModelsAreCaptured) {
  const auto model = std::make_shared<WideGuarded>();
  const at::Tensor x = torch::randn({3, 8});
  const auto captured = ulp::capture(*model, {x});
  EXPECT_TRUE(torch::allclose(captured->forward({x}), model->forward(x), 1e-2, 1e-2));
  captured->train();
  captured->forward({x}).sum().backward();
}

}  // namespace
