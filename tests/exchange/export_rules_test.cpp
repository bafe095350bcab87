// Arguments and windows that formats have by other rules: round to decimals, averages with ceil_mode, padding
// "same" with dilation, sums with a product of matrices, LSTM layers with projection. What a file says is
// what the graph computes, or it is refused by name.
#include <torch/torch.h>

#include <sstream>
#include <string>

#include "captured_function.h"
#include "coreml_run.h"
#include "error_of.h"
#include "onnx_reader.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

using Body = std::function<at::Tensor(const at::Tensor&)>;
using Module = std::shared_ptr<graph::GraphModule>;
using Ints = std::vector<int64_t>;

at::Tensor from_onnx(const Module& module, const at::Tensor& x) {
  return exchange::import_onnx(exchange::export_onnx(*module), "model.onnx")->forward(x);
}

at::Tensor from_tflite(const Module& module, const at::Tensor& x) {
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = x.size(0)}));
  return TfliteRun(*file).run({channels_last(x)}).at(0);
}

at::Tensor from_coreml(const Module& module, const at::Tensor& x, bool fp16 = false) {
  const TemporaryFolder folder;
  exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = x.size(0), .fp16 = fp16});
  const MilModel model = read_coreml(folder / "m.mlpackage");
  return MilRun(model).run(x);
}

/// Without a batch.
Module captured_whole(Body body, const at::Tensor& x) {
  auto net = std::make_shared<FunctionNet>();
  net->body = std::move(body);
  graph::CaptureOptions options;
  options.batch_dims = {-1};
  auto module = capture(net, {x}, options);
  module->eval();
  return module;
}

/// What a window of an average or of a maximum is.
struct Pool {
  Ints kernel, stride, padding;
  bool ceil = true, counts = true;

  at::Tensor average(const at::Tensor& x) const {
    if (kernel.size() == 1) return torch::avg_pool1d(x, kernel, stride, padding, ceil, counts);
    if (kernel.size() == 2) return torch::avg_pool2d(x, kernel, stride, padding, ceil, counts);
    return torch::avg_pool3d(x, kernel, stride, padding, ceil, counts);
  }
  at::Tensor maximum(const at::Tensor& x) const {
    if (kernel.size() == 1) return torch::max_pool1d(x, kernel, stride, padding, 1, ceil);
    if (kernel.size() == 2) return torch::max_pool2d(x, kernel, stride, padding, 1, ceil);
    return torch::max_pool3d(x, kernel, stride, padding, 1, ceil);
  }
  std::string words() const {
    std::ostringstream out;
    out << "kernel " << at::IntArrayRef(kernel) << " stride " << at::IntArrayRef(stride) << " padding "
        << at::IntArrayRef(padding) << " counts " << counts << " ceil " << ceil;
    return out.str();
  }
};

Pool drawn_pool(Draw& draw, size_t dims) {
  Pool pool{.kernel = {}, .stride = {}, .padding = {}, .ceil = draw.between(0, 3) > 0, .counts = draw.coin()};
  for (size_t d = 0; d < dims; ++d) {
    pool.kernel.push_back(draw.between(1, 4));
    pool.stride.push_back(draw.between(1, 4));
    pool.padding.push_back(draw.between(0, pool.kernel.back() / 2));
  }
  return pool;
}

at::Tensor drawn_image(Draw& draw, size_t dims) {
  Ints shape = {2, 3};
  for (size_t d = 0; d < dims; ++d) shape.push_back(draw.between(4, 9));
  return torch::randn(shape) + 1;
}

constexpr double kRuleRounding = 2e-6;

}  // namespace

TEST(ExportRules, RoundKeepsItsDecimals) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({4, 6}) * 300;
  for (const int64_t decimals : {0, 1, 2, 5, -1, -2}) {
    const Module module = captured_function([=](const at::Tensor& one) { return one.round(decimals); }, x);
    const at::Tensor ours = module->forward(x);
    EXPECT_TRUE(torch::equal(ours, from_onnx(module, x))) << decimals;
    EXPECT_TRUE(torch::equal(ours, from_tflite(module, x))) << decimals;
    EXPECT_TRUE(torch::equal(ours, from_coreml(module, x))) << decimals;
  }
  const Module module = captured_function([](const at::Tensor& one) { return one.round(5); }, x);
  EXPECT_ERROR(exchange::export_onnx(*module, {.fp16 = true}), "expected decimals whose power of ten");
}

TEST(ExportRules, PowersOfInt64AreProductsInTensorFlowLite) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::tensor({1, -2, 3, 0, 7, 1000003}, torch::kLong).view({2, 3});
  for (const int64_t exponent : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
    const Module module = captured_function([=](const at::Tensor& one) { return one.pow(exponent); }, x);
    EXPECT_TRUE(torch::equal(module->forward(x), from_tflite(module, x))) << exponent;
  }
  const auto refusal = [&](const Body& body) {
    return error_of([&] { exchange::export_tflite(*captured_function(body, x)); });
  };
  const std::string expected = "expected float32, or whole numbers to the power of a number from 1 to";
  EXPECT_SAYS(refusal([](const at::Tensor& one) { return one.pow(0); }), expected);
  EXPECT_SAYS(refusal([](const at::Tensor& one) { return one.pow(one.abs()); }), expected);
  EXPECT_SAYS(refusal([](const at::Tensor& one) { return at::pow(2, one.abs()); }), expected);
}

TEST(ExportRules, InputsOfATypeThatTensorFlowLiteHasNotAreRefused) {
  const at::Tensor x = torch::ones({2, 3}, torch::kShort);
  const Module module = captured_function([](const at::Tensor& one) { return one + one; }, x);
  const std::string error = error_of([&] { exchange::export_tflite(*module); });
  EXPECT_SAYS(error, "[exchange.export_tflite] input '");
  EXPECT_SAYS(error, "expected numbers of float32, int8, uint8, int32, int64 or bool, got Short");
}

TEST(ExportRules, SoftplusOfAnotherThresholdIsSpelledOut) {
  const at::Tensor x = torch::randn({4, 6});
  const Module module =
      captured_function([](const at::Tensor& one) { return torch::softplus(one, 1, 2); }, x);
  EXPECT_LE(relative_difference(module->forward(x), from_onnx(module, x)), 1e-6);
  EXPECT_LE(relative_difference(module->forward(x), from_coreml(module, x)), 1e-6);
}

TEST(ExportRules, SoftmaxHasTheTypeThatItIsGiven) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({4, 6});
  const Module module = captured_function(
      [](const at::Tensor& one) { return one.to(torch::kLong).softmax(1, torch::kFloat); }, x);
  EXPECT_LE(relative_difference(module->forward(x), from_onnx(module, x)), kRuleRounding);
}

TEST(ExportRules, CoreMlPoolsOfRandomWindowsGiveTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    const auto dims = static_cast<size_t>(draw.between(1, 3));
    const Pool pool = drawn_pool(draw, dims);
    const at::Tensor x = drawn_image(draw, dims);
    const Module averages = captured_function([=](const at::Tensor& one) { return pool.average(one); }, x);
    EXPECT_LE(relative_difference(averages->forward(x), from_coreml(averages, x)), kRuleRounding)
        << pool.words() << " of " << x.sizes();
    const Module maxima = captured_function([=](const at::Tensor& one) { return pool.maximum(one); }, x);
    EXPECT_TRUE(torch::equal(maxima->forward(x), from_coreml(maxima, x)))
        << pool.words() << " of " << x.sizes();
  }
}

TEST(ExportRules, CoreMlAveragesWithCeilModeAreRightInHalves) {
  const torch::NoGradGuard no_grad;
  const Pool pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const at::Tensor x = torch::randn({1, 2, 6, 6}) + 1;
  const Module module = captured_function([=](const at::Tensor& one) { return pool.average(one); }, x);
  EXPECT_LE(relative_difference(module->forward(x), from_coreml(module, x, /*fp16=*/true)), 2e-3);
}

TEST(ExportRules, OnnxAveragesOfRandomWindowsComeBackTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    const auto dims = static_cast<size_t>(draw.between(1, 3));
    const Pool pool = drawn_pool(draw, dims);
    const at::Tensor x = drawn_image(draw, dims);
    const Module module = captured_function([=](const at::Tensor& one) { return pool.average(one); }, x);
    EXPECT_LE(relative_difference(module->forward(x), from_onnx(module, x)), kRuleRounding)
        << pool.words() << " of " << x.sizes();
  }
}

TEST(ExportRules, OnnxAveragesEndWhereNoWindowBeginsInThePadding) {
  // Behind 7 columns a window would begin in the padding; that of the rows ends outside of it.
  const at::Tensor x = torch::zeros({1, 1, 6, 7});
  const Module module = captured_function(
      [](const at::Tensor& one) {
        return torch::avg_pool2d(one, {4, 2}, {3, 4}, {1, 1}, true);
      },
      x);
  const ReadModel model = read_onnx(exchange::export_onnx(*module));
  ASSERT_EQ(model.of("Pad").size(), 1U);
  EXPECT_EQ(model.initializers.at(model.of("Pad")[0].inputs[1]).as<int64_t>(),
            (Ints{0, 0, 1, 1, 0, 0, 1, -2}));
}

TEST(ExportRules, PaddingByAWordIsWrittenInNumbers) {
  const torch::NoGradGuard no_grad;
  for (const int64_t kernel : {2, 3, 4}) {
    auto net = std::make_shared<FunctionNet>();
    auto conv = net->register_module(
        "conv", torch::nn::Conv2d(
                    torch::nn::Conv2dOptions(3, 4, {kernel, 3}).dilation({3, 2}).padding(torch::kSame)));
    net->body = [=](const at::Tensor& x) mutable { return conv->forward(x); };
    const at::Tensor x = torch::randn({2, 3, 9, 8});
    const Module module = captured_net(net, x);
    const ReadModel model = read_onnx(exchange::export_onnx(*module));
    const ReadNode made = model.of("Conv").at(0);
    EXPECT_FALSE(made.attributes.contains("auto_pad"));
    const int64_t both = 3 * (kernel - 1);
    EXPECT_EQ(made.attributes.at("pads").ints, (Ints{both / 2, 2, both - both / 2, 2}));
    const at::Tensor ours = module->forward(x);
    EXPECT_LE(relative_difference(ours, from_onnx(module, x)), kRuleRounding);
    EXPECT_LE(relative_difference(channels_last(ours), from_tflite(module, x)), kRuleRounding);
  }
}

TEST(ExportRules, CoreMlSumsWithProductsTakeWhatIsBroadcast) {
  const torch::NoGradGuard no_grad;
  for (const Ints& shape : std::vector<Ints>{{}, {5}, {1, 5}, {4, 1}, {4, 5}}) {
    const at::Tensor first = torch::randn(shape), right = torch::randn({6, 5}), x = torch::randn({4, 6});
    const Module module = captured_whole(
        [=](const at::Tensor& one) { return torch::addmm(first, one, right, /*beta=*/0.5, /*alpha=*/2); }, x);
    EXPECT_LE(relative_difference(module->forward(x), from_coreml(module, x)), kRuleRounding)
        << at::IntArrayRef(shape);
  }
  for (const Ints& shape : std::vector<Ints>{{5}, {1, 1, 5}, {2, 1, 5}, {4, 1}, {2, 4, 5}}) {
    const at::Tensor first = torch::randn(shape), right = torch::randn({2, 6, 5}),
                     x = torch::randn({2, 4, 6});
    const Module module = captured_whole(
        [=](const at::Tensor& one) { return torch::baddbmm(first, one, right, /*beta=*/3, /*alpha=*/0.5); },
        x);
    EXPECT_LE(relative_difference(module->forward(x), from_coreml(module, x)), kRuleRounding)
        << at::IntArrayRef(shape);
  }
}

TEST(ExportRules, RecurrentLayersWithProjectionAreRefused) {
  for (const int64_t layers : {1, 2}) {
    auto net = std::make_shared<FunctionNet>();
    auto lstm = net->register_module(
        "lstm",
        torch::nn::LSTM(torch::nn::LSTMOptions(4, 6).proj_size(3).num_layers(layers).batch_first(true)));
    net->body = [=](const at::Tensor& x) mutable { return std::get<0>(lstm->forward(x)); };
    const Module module = captured_net(net, torch::randn({2, 5, 4}));
    EXPECT_ERROR(exchange::export_onnx(*module), "expected a layer without a projection (proj_size 0)");
  }
}

TEST(ExportRules, HardSwishOfCodesHasTheOnlyVersionThatThereIs) {
  auto net = std::make_shared<FunctionNet>();
  auto first = net->register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
  auto last = net->register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 2, 1)));
  net->body = [=](const at::Tensor& x) mutable { return last->forward(torch::hardswish(first->forward(x))); };
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  const auto prepared = quant::prepare(captured_net(net, x), quant::Recipe::tflite_int8());
  prepared->forward(x);
  const auto file = read_tflite(exchange::export_tflite(*quant::convert(prepared), {.integer_io = true}));
  ASSERT_EQ(file->of(kHardSwish).size(), 1U);
  EXPECT_EQ(file->input(file->of(kHardSwish)[0], 0).type, kInt8Type);
  EXPECT_EQ(file->of(kHardSwish)[0].version, 1);
}

}  // namespace ulp::test
