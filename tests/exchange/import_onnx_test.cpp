// ONNX files that come back: ours give the same bits under the same names. Files of other writers are
// compared by bench/onnx_import.cpp.
#include "ulp/exchange/import_onnx.h"

#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"
#include "onnx_message.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::test {

namespace {

using exchange::import_onnx;
using Module = std::shared_ptr<graph::GraphModule>;

Module back(const graph::GraphModule& module, int64_t opset = 21,
            const exchange::OnnxImportOptions& options = {}) {
  return import_onnx(exchange::export_onnx(module, {.opset = opset}), "model.onnx", options);
}

/// The same bits, or apart by `limit` of the largest result.
void expect_same_bits(const Module& a, const Module& b, const at::Tensor& x, double limit = 0) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> one = a->forward_all({x}), other = b->forward_all({x});
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    const double apart = (one[i] - other[i]).abs().max().item<double>();
    const double largest = one[i].abs().max().item<double>();
    EXPECT_TRUE(torch::equal(one[i], other[i]) || apart < limit * largest)
        << "result " << i << ": " << apart << " of " << largest;
  }
}

/// `tables`: buffers of `a`, which a file has among its weights.
void expect_same_names(const Module& a, const Module& b, size_t tables = 0) {
  const auto one = a->named_parameters(), other = b->named_parameters();
  for (const auto& item : one) {
    ASSERT_TRUE(other.contains(item.key())) << item.key();
    EXPECT_TRUE(torch::equal(item.value(), other[item.key()])) << item.key();
  }
  EXPECT_EQ(one.size() + tables, other.size());
}

Module image_network_of(const std::string& name, int64_t side, int64_t channels) {
  torch::manual_seed(1);
  const auto model = models::make_model(name, {.in_channels = channels, .image_size = side});
  model->eval();
  Module module = capture(*model, {torch::zeros({2, channels, side, side})});
  module->eval();
  return module;
}

}  // namespace

// The other reference networks are made of the same ops.
TEST(ImportOnnx, GivesReferenceNetworksBackWithTheSameBits) {
  for (const char* name : {"mlp", "lenet5", "resnet8", "mobilenet_v2", "unet", "binary_lenet5"}) {
    SCOPED_TRACE(name);
    const bool small =
        std::string_view(name).find("lenet") != std::string_view::npos || std::string_view(name) == "mlp";
    const int64_t side = small ? 28 : 32, channels = small ? 1 : 3;
    const Module module = image_network_of(name, side, channels);
    const Module again = back(*module);
    expect_same_names(module, again);
    for (const int64_t batch : {1, 5})
      expect_same_bits(module, again, torch::randn({batch, channels, side, side}));
  }
}

TEST(ImportOnnx, GivesTextNetworksBackWithTheSameBits) {
  for (const std::string& name : models::text_model_names()) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    const auto model =
        models::make_text_model(name, {.task = models::text_model_tasks(name)[0], .max_length = 24});
    model->eval();
    graph::CaptureOptions options;
    options.free = {{0, 1, "time"}};
    Module module = capture(model, {torch::ones({2, 24}, torch::kLong)}, options);
    module->eval();
    const Module again = back(*module, 21, {.sizes = {{"time", {.min = 1, .max = 24}}}});
    // Opset 21 has no RMS norm: its parts round otherwise. Two tables hold the angles of positions.
    const bool rotates = name == "llama";
    expect_same_names(module, again, rotates ? 2 : 0);
    const double limit = rotates ? 2e-6 : 0;
    for (const int64_t length : {24, 17})
      expect_same_bits(module, again, torch::randint(1, 90, {3, length}), limit);
  }
}

TEST(ImportOnnx, OldOpsetsGiveTheSameBits) {
  const Module module = image_network_of("mobilenet_v2", 32, 3);
  expect_same_bits(module, back(*module, 17), torch::randn({3, 3, 32, 32}));
  torch::manual_seed(1);
  const auto model = models::make_text_model("gpt2", {.max_length = 16});
  model->eval();
  const Module text = capture(*model, {torch::ones({2, 16}, torch::kLong)});
  text->eval();
  expect_same_bits(text, back(*text, 17), torch::randint(1, 90, {3, 16}));  // GELU is spelled out there
}

TEST(ImportOnnx, TrainsAsTheNetworkThatWasExported) {
  const Module module = image_network_of("resnet8", 32, 3), again = back(*module);
  const at::Tensor x = torch::randn({4, 3, 32, 32});
  for (const Module& one : {module, again}) {
    one->train();
    one->forward(x).square().mean().backward();
  }
  for (const auto& item : module->named_parameters()) {
    EXPECT_TRUE(
        torch::allclose(again->named_parameters()[item.key()].grad(), item.value().grad(), 1e-4, 1e-6))
        << item.key();
  }
  for (const auto& item : module->named_buffers()) {
    if (item.key().find("running") == std::string::npos) continue;
    EXPECT_TRUE(torch::allclose(again->named_buffers()[item.key()], item.value())) << item.key();
  }
}

TEST(ImportOnnx, TellsParametersFromOtherTensors) {
  const std::string bytes = OnnxText()
                                .input("x", {-1, 2})
                                .floats("mean", {2}, {1, 2})
                                .floats("fc.weight", {2, 3}, {1, 2, 3, 4, 5, 6})
                                .floats("fc.bias", {3}, {7, 8, 9})
                                .node("Sub", {"x", "mean"}, {"centered"})
                                .node("MatMul", {"centered", "fc.weight"}, {"product"})
                                .node("Add", {"fc.bias", "product"}, {"y"})
                                .output("y")
                                .bytes();
  const Module module = import_onnx(bytes, "model.onnx");
  EXPECT_EQ(module->named_parameters().keys(), (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(module->named_buffers().keys(), (std::vector<std::string>{"mean"}));
  EXPECT_EQ(module->named_parameters()["fc.weight"].sizes(), (std::vector<int64_t>{3, 2}));
  const at::Tensor y = module->forward(torch::tensor({{2.0F, 4.0F}}));
  EXPECT_TRUE(torch::equal(y, torch::tensor({{1 + 8 + 7.0F, 2 + 10 + 8.0F, 3 + 12 + 9.0F}})));
}

TEST(ImportOnnx, ABatchNormHasStatisticsOfItsOwn) {
  // Equal tensors are one in such files, some of them behind an Identity.
  const std::string bytes =
      OnnxText()
          .input("x", {-1, 2})
          .floats("bn.weight", {2}, {1, 1})
          .floats("bn.bias", {2}, {0, 0})
          .node("Identity", {"bn.weight"}, {"bn.running_var"})
          .node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.bias", "bn.running_var"}, {"y"})
          .output("y")
          .bytes();
  const Module module = import_onnx(bytes, "model.onnx");
  EXPECT_EQ(module->named_parameters().size(), 2U);
  EXPECT_TRUE(module->named_buffers().contains("bn.running_var"));
  const at::Tensor x = torch::randn({16, 2}) * 3 + 5;
  module->eval();
  EXPECT_TRUE(torch::allclose(module->forward(x), x, 1e-4, 1e-4));
  module->train();
  module->forward(x).square().sum().backward();
  EXPECT_TRUE(torch::equal(module->named_parameters()["bn.bias"], torch::zeros({2})));
  EXPECT_FALSE(torch::equal(module->named_buffers()["bn.running_var"], torch::ones({2})));
}

TEST(ImportOnnx, AveragesThatReachPastTheirPaddingComeBack) {
  const torch::NoGradGuard no_grad;
  for (const int64_t side : {2, 3, 12, 13}) {
    torch::nn::Sequential model{
        torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(3).stride(2).padding(1).ceil_mode(true))};
    const at::Tensor x = torch::rand({2, 4, side, side + 1}) + 1;
    const Module module = capture(model, {x});
    EXPECT_TRUE(torch::allclose(back(*module)->forward(x), model->forward(x), 1e-6, 0)) << side;
    // OpenVINO divides such windows otherwise, unless the padding is no part of the operator.
    const std::string file = exchange::export_onnx(*module);
    EXPECT_EQ(file.find("count_include_pad") == std::string::npos, file.find("Pad") != std::string::npos)
        << side;
    if (side == 12) {
      EXPECT_NE(file.find("Pad"), std::string::npos);
    }
  }
}

TEST(ImportOnnx, SizesThatFollowTheInputsFoldIntoArguments) {
  // x [batch, time, 4] becomes [batch, 2, time * 2] by its own sizes; a mean of ones stands beside it.
  const std::string bytes = OnnxText()
                                .input("x", {-1, -2, 4})
                                .ints("zero", {0})
                                .ints("one", {1})
                                .ints("two", {2})
                                .node("Shape", {"x"}, {"sizes"})
                                .node("Gather", {"sizes", "zero"}, {"batch"}, {{"axis", 0}})
                                .node("Gather", {"sizes", "one"}, {"time"}, {{"axis", 0}})
                                .node("Mul", {"time", "two"}, {"wide"})
                                .node("Concat", {"batch", "two", "wide"}, {"to"}, {{"axis", 0}})
                                .node("Reshape", {"x", "to"}, {"y"})
                                .output("y")
                                .bytes();
  const Module module = import_onnx(bytes, "model.onnx");
  for (const int64_t time : {3, 50})
    EXPECT_EQ(module->forward(torch::ones({5, time, 4})).sizes(), (std::vector<int64_t>{5, 2, 2 * time}));
  EXPECT_EQ(module->graph().free.at(0).name, "x.1");
  EXPECT_EQ(import_onnx(bytes, "model.onnx", {.sizes = {{"x.1", {.min = 7}}}})->graph().free.size(), 0);
}

TEST(ImportOnnx, AFixedBatchIsFreedWhereAsked) {
  const auto with = [](const OnnxText& start) {
    return OnnxText(start).input("x", {1, 2, 3}).node("Reshape", {"x", "to"}, {"y"}).output("y").bytes();
  };
  const std::string free = with(OnnxText().ints("to", {-1, 6})), fixed = with(OnnxText().ints("to", {1, 6}));
  EXPECT_ERROR(import_onnx(free, "model.onnx")->forward(torch::ones({4, 2, 3})), "");
  EXPECT_EQ(import_onnx(free, "model.onnx", {.free_batch = true})->forward(torch::ones({4, 2, 3})).size(0),
            4);
  EXPECT_EQ(import_onnx(fixed, "model.onnx", {.free_batch = true})->forward(torch::ones({1, 2, 3})).size(1),
            6);
}

TEST(ImportOnnx, SizesOfImagesThatAreFixedAreSaid) {
  OnnxCase file;
  file.input("x", {-1, 2, -2, 10}).node("Relu", {"x"}, {"y"}).output("y");
  std::vector<exchange::FixedSize> fixed;
  exchange::OnnxImportOptions options{.image_size = 28, .free_batch = true};
  options.on_fixed_size = [&](const exchange::FixedSize& one) { fixed.push_back(one); };
  EXPECT_TRUE(file.import(18, options)->graph().free.empty());
  ASSERT_EQ(fixed.size(), 1);
  EXPECT_EQ(fixed[0].input, "x");
  EXPECT_EQ(fixed[0].name, "time");
  EXPECT_EQ(fixed[0].size, 28);
  // One that somebody named stays free.
  options.sizes["time"] = {.max = 40};
  fixed.clear();
  EXPECT_EQ(file.import(18, options)->graph().free.at(0).max, 40);
  EXPECT_TRUE(fixed.empty());
}

TEST(ImportOnnx, ResultsKeepTheirNames) {
  const auto single = import_onnx(
      OnnxText().input("x", {-1, 2}).node("Relu", {"x"}, {"/head/logits"}).output("/head/logits").bytes(),
      "one.onnx");
  EXPECT_EQ(single->graph().output_node()->args.at(0).value->name, "/head/logits");
  const std::string file = OnnxText()
                               .input("x", {-1, 2})
                               .node("Relu", {"x"}, {"first"})
                               .node("Tanh", {"x"}, {"second"})
                               .output("first")
                               .output("second")
                               .bytes();
  const auto model = import_onnx(file, "two.onnx");
  const auto again = import_onnx(exchange::export_onnx(*model), "again.onnx");
  for (const auto& one : {model, again}) {
    const graph::Argument& results = one->graph().output_node()->args.at(0);
    ASSERT_EQ(results.items.size(), 2U);
    EXPECT_EQ(results.items[0].items.at(1).value->name, "first");
    EXPECT_EQ(results.items[1].items.at(1).value->name, "second");
    EXPECT_EQ(results.items[1].items.at(0).literal.toStringRef(), "second");
  }
}

}  // namespace ulp::test
