// TensorFlow Lite files: structure, layouts, weights, codes, refusals. What LiteRT computes from them is
// compared by bench/peers/tflite_check.py.
#include "ulp/exchange/export_tflite.h"

#include <tflite_schema_generated.h>
#include <torch/torch.h>

#include <fstream>
#include <limits>
#include <set>

#include "error_of.h"
#include "temporary_folder.h"
#include "tflite_reader.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

using exchange::export_tflite;
using exchange::TfliteOptions;
using Sizes = std::vector<int32_t>;
using File = std::unique_ptr<TfliteModel>;

struct TfliteNet : torch::nn::Module {
  std::function<at::Tensor(const at::Tensor&)> body;
  at::Tensor forward(at::Tensor x) { return body(x); }
};

std::shared_ptr<graph::GraphModule> tflite_captured(const std::shared_ptr<TfliteNet>& net,
                                                    const at::Tensor& x) {
  net->eval();
  auto module = capture(net, {x});
  module->eval();
  return module;
}

std::shared_ptr<graph::GraphModule> tflite_function(std::function<at::Tensor(const at::Tensor&)> body,
                                                    const at::Tensor& x) {
  auto net = std::make_shared<TfliteNet>();
  net->body = std::move(body);
  return tflite_captured(net, x);
}

std::shared_ptr<graph::GraphModule> tflite_network(const std::string& name, int64_t channels, int64_t side) {
  torch::manual_seed(1);
  const auto model = models::make_model(name, {.in_channels = channels, .image_size = side});
  model->eval();
  auto module = capture(*model, {torch::randn({2, channels, side, side})});
  module->eval();
  return module;
}

/// Verified by the generated code, and each tensor written before it is read.
File read_sound(const std::string& bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  EXPECT_TRUE(exchange::tflite::schema::VerifyModelBuffer(verifier));
  File file = read_tflite(bytes);
  EXPECT_EQ(file->identifier, "TFL3");
  EXPECT_EQ(file->version, 3);
  std::set<int32_t> known(file->inputs.begin(), file->inputs.end());
  known.insert(-1);
  std::set<std::string> names;
  for (size_t i = 0; i < file->tensors.size(); ++i) {
    const TfliteTensor& tensor = file->tensors[i];
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    EXPECT_EQ(tensor.start % 16, 0) << tensor.name;
    if (!tensor.bytes.empty()) known.insert(static_cast<int32_t>(i));
  }
  for (const TfliteOperator& op : file->operators) {
    for (const int32_t input : op.inputs) EXPECT_TRUE(known.contains(input)) << op.code;
    for (const int32_t output : op.outputs) EXPECT_TRUE(known.insert(output).second) << op.code;
  }
  for (const int32_t output : file->outputs) EXPECT_TRUE(known.contains(output));
  return file;
}

File exported(const graph::GraphModule& module, const TfliteOptions& options = {}) {
  return read_sound(export_tflite(module, options));
}

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  return {dense.const_data_ptr<float>(), dense.const_data_ptr<float>() + dense.numel()};
}

std::shared_ptr<graph::GraphModule> tflite_int8(const std::shared_ptr<graph::GraphModule>& module,
                                                const at::Tensor& images,
                                                const quant::Recipe& recipe = quant::Recipe::tflite_int8()) {
  const auto prepared = quant::prepare(module, recipe);
  prepared->forward(images);
  return quant::convert(prepared);
}

/// Options: padding, and where the clamp behind is.
constexpr int kConvFused = 3, kFullyConnectedFused = 0;
constexpr int kReluFused = 1;

}  // namespace

TEST(ExportTflite, ImagesHaveTheirChannelsLast) {
  const auto lenet = tflite_network("lenet5", 1, 28);
  const File file = exported(*lenet);
  ASSERT_EQ(file->inputs.size(), 1);
  EXPECT_EQ(file->tensor(file->inputs[0]).name, "input");
  EXPECT_EQ(file->tensor(file->inputs[0]).shape, (Sizes{1, 28, 28, 1}));
  EXPECT_EQ(file->tensor(file->outputs.at(0)).shape, (Sizes{1, 10}));
  EXPECT_EQ(file->signature_inputs, (std::vector<std::string>{"input"}));
  EXPECT_EQ(file->signature_outputs, (std::vector<std::string>{file->tensor(file->outputs[0]).name}));
  EXPECT_TRUE(file->of(kTranspose).empty());
  const TfliteOperator conv = file->of(kConv).at(1);
  const at::Tensor weight = lenet->named_parameters()["conv2.weight"];
  EXPECT_EQ(file->input(conv, 1).shape, (Sizes{16, 5, 5, 6}));
  EXPECT_EQ(file->input(conv, 1).as<float>(), floats_of(weight.permute({0, 2, 3, 1})));
  EXPECT_EQ(conv.options.get<int8_t>(kConvFused), kReluFused);
}

TEST(ExportTflite, TheLayerBehindAFlattenReadsPixelsFirst) {
  const auto lenet = tflite_network("lenet5", 1, 28);
  const File file = exported(*lenet);
  const TfliteOperator first = file->of(kFullyConnected).at(0);
  const at::Tensor weight = lenet->named_parameters()["fc1.weight"];  // of 16 channels of 5 x 5
  EXPECT_EQ(file->input(first, 1).as<float>(),
            floats_of(weight.reshape({120, 16, 25}).transpose(1, 2).reshape({120, 400})));
  EXPECT_EQ(first.options.get<int8_t>(kFullyConnectedFused), kReluFused);
  EXPECT_EQ(file->input(file->of(kFullyConnected).at(1), 1).as<float>(),
            floats_of(lenet->named_parameters()["fc2.weight"]));
}

TEST(ExportTflite, AFlattenThatOthersReadIsTransposedBefore) {
  const auto net = tflite_function([](const at::Tensor& x) { return torch::max_pool2d(x, 2).flatten(1); },
                                   torch::zeros({2, 3, 8, 8}));
  const File file = exported(*net);
  ASSERT_EQ(file->of(kTranspose).size(), 1);
  EXPECT_EQ(file->input(file->of(kTranspose)[0], 1).as<int32_t>(), (Sizes{0, 3, 1, 2}));
}

TEST(ExportTflite, PadsByAWordOrByAnOperator) {
  const auto convolved = [](int64_t side, int64_t kernel, int64_t stride, int64_t padding) {
    auto net = std::make_shared<TfliteNet>();
    auto conv = net->register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, kernel).stride(stride).padding(padding)));
    net->body = [=](const at::Tensor& x) mutable { return conv->forward(x); };
    return exported(*tflite_captured(net, torch::zeros({2, 2, side, side})));
  };
  constexpr int kSame = 0, kValid = 1;
  EXPECT_EQ(convolved(8, 3, 1, 1)->of(kConv).at(0).options.get<int8_t>(0), kSame);
  EXPECT_EQ(convolved(8, 3, 1, 0)->of(kConv).at(0).options.get<int8_t>(0), kValid);
  EXPECT_EQ(convolved(9, 3, 2, 1)->of(kConv).at(0).options.get<int8_t>(0), kSame);
  // SAME would begin at the first pixel and pad behind.
  const File apart = convolved(8, 3, 2, 1);
  EXPECT_EQ(apart->of(kConv).at(0).options.get<int8_t>(0), kValid);
  ASSERT_EQ(apart->of(kPad).size(), 1);
  EXPECT_EQ(apart->input(apart->of(kPad)[0], 1).as<int32_t>(), (Sizes{0, 0, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(apart->output(apart->of(kPad)[0]).shape, (Sizes{1, 9, 9, 2}));
}

TEST(ExportTflite, MaxPoolingPadsWithTheLowestNumber) {
  const auto net = tflite_function([](const at::Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); },
                                   torch::zeros({2, 3, 8, 8}));
  const File file = exported(*net);
  ASSERT_EQ(file->of(kPadV2).size(), 1);
  EXPECT_EQ(file->input(file->of(kPadV2)[0], 2).as<float>(),
            std::vector<float>{std::numeric_limits<float>::lowest()});
}

TEST(ExportTflite, DepthwiseWeightsHaveTheirChannelsLast) {
  auto net = std::make_shared<TfliteNet>();
  auto conv = net->register_module(
      "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).padding(1).groups(4).bias(false)));
  auto norm = net->register_module("norm", torch::nn::BatchNorm2d(8));
  norm->running_var.fill_(4);
  norm->bias.data().fill_(2);
  net->body = [&](const at::Tensor& x) { return torch::relu6(norm->forward(conv->forward(x))); };
  const File file = exported(*tflite_captured(net, torch::zeros({2, 4, 8, 8})));
  ASSERT_EQ(file->operators.size(), 1);
  const TfliteOperator op = file->of(kDepthwise).at(0);
  constexpr int kMultiplier = 3, kFused = 4, kRelu6 = 3;
  EXPECT_EQ(op.options.get<int32_t>(kMultiplier), 2);
  EXPECT_EQ(op.options.get<int8_t>(kFused), kRelu6);
  EXPECT_EQ(file->input(op, 1).shape, (Sizes{1, 3, 3, 8}));
  const std::vector<float> made = file->input(op, 1).as<float>();
  const at::Tensor wanted = conv->weight.permute({1, 2, 3, 0}) / std::sqrt(4 + 1e-5);
  EXPECT_TRUE(torch::allclose(torch::tensor(made), wanted.flatten(), 1e-5, 1e-7));
  EXPECT_EQ(file->input(op, 2).as<float>(), std::vector<float>(8, 2));
}

TEST(ExportTflite, TheBatchIsANumberOrFree) {
  const auto lenet = tflite_network("lenet5", 1, 28);
  EXPECT_TRUE(exported(*lenet)->tensor(0).signature.empty());
  EXPECT_EQ(exported(*lenet, {.batch = 3})->tensor(0).shape, (Sizes{3, 28, 28, 1}));
  const File free = exported(*lenet, {.batch = 0});
  EXPECT_EQ(free->tensor(free->inputs.at(0)).signature, (Sizes{-1, 28, 28, 1}));
  EXPECT_EQ(free->input(free->of(kReshape).at(0), 1).as<int32_t>(), (Sizes{-1, 400}));
  EXPECT_ERROR(export_tflite(*lenet, {.batch = -1}), "got -1");
}

TEST(ExportTflite, GivesTheSameBytesEachTimeAndInAFile) {
  const auto network = tflite_network("resnet8", 3, 32);
  const std::string bytes = export_tflite(*network);
  EXPECT_EQ(export_tflite(*network), bytes);
  const TemporaryFolder folder;
  export_tflite(*network, folder / "m.tflite");
  std::ifstream in(folder / "m.tflite", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), bytes);
  EXPECT_ERROR(export_tflite(*network, folder / "no" / "m.tflite"), "m.tflite");
}

TEST(ExportTflite, TakesTheSmallReferenceNetworks) {
  for (const char* name : {"mlp", "lenet5", "resnet8", "shufflenet_v2_x1_0", "unet"}) {
    SCOPED_TRACE(name);
    const auto network = tflite_network(name, 3, 32);
    for (const int64_t batch : {0, 1}) exported(*network, {.batch = batch});
  }
}

TEST(ExportTflite, NamesWhatHasNoForm) {
  const auto net =
      tflite_function([](const at::Tensor& x) { return torch::lgamma(x).digamma(); }, torch::ones({2, 3}));
  const std::string error = error_of([&] { export_tflite(*net); });
  EXPECT_SAYS(error, "[exchange.export_tflite]");
  EXPECT_SAYS(error, "aten::lgamma 'lgamma'");
  EXPECT_SAYS(error, "aten::digamma 'digamma'");
  EXPECT_SAYS(error, "the names nearest to it with one are aten::");
}

TEST(ExportTflite, ObserversAreRefused) {
  const auto prepared = quant::prepare(tflite_network("lenet5", 1, 28), quant::Recipe::tflite_int8());
  EXPECT_ERROR(export_tflite(*prepared), "quant::convert comes first");
}

TEST(ExportTflite, Int8LayersReadAndWriteCodes) {
  const auto lenet = tflite_int8(tflite_network("lenet5", 1, 28), torch::randn({4, 1, 28, 28}));
  const File file = exported(*lenet, {.integer_io = true});
  EXPECT_EQ(file->tensor(file->inputs.at(0)).type, kInt8Type);
  EXPECT_EQ(file->tensor(file->outputs.at(0)).type, kInt8Type);
  EXPECT_TRUE(file->of(kQuantize).empty());
  EXPECT_TRUE(file->of(kDequantize).empty());
  ASSERT_EQ(file->of(kConv).size(), 2);
  ASSERT_EQ(file->of(kFullyConnected).size(), 3);
  for (const int code : {kConv, kFullyConnected}) {
    for (const TfliteOperator& op : file->of(code)) {
      const TfliteTensor &x = file->input(op, 0), &weight = file->input(op, 1), &bias = file->input(op, 2);
      EXPECT_EQ(x.type, kInt8Type);
      EXPECT_EQ(file->output(op).type, kInt8Type);
      EXPECT_EQ(weight.type, kInt8Type);
      EXPECT_EQ(weight.axis, 0);
      EXPECT_EQ(std::ssize(weight.scale), weight.shape[0]);
      EXPECT_EQ(weight.zero_point, std::vector<int64_t>(weight.scale.size(), 0));
      for (const char one : weight.bytes) EXPECT_NE(static_cast<int8_t>(one), -128);
      EXPECT_EQ(bias.type, kInt32Type);
      ASSERT_EQ(bias.scale.size(), weight.scale.size());
      for (size_t c = 0; c < bias.scale.size(); ++c)
        EXPECT_EQ(bias.scale[c], x.scale.at(0) * weight.scale[c]);
    }
  }
  const at::Tensor codes =
      lenet->graph().find_attribute("conv1.weight.int8")->tensor.permute({0, 2, 3, 1}).contiguous();
  EXPECT_EQ(file->input(file->of(kConv)[0], 1).bytes,
            std::string(static_cast<const char*>(codes.const_data_ptr()), codes.nbytes()));
  for (const TfliteOperator& op : file->of(kMaxPool)) {
    EXPECT_EQ(file->input(op, 0).scale, file->output(op).scale);
    EXPECT_EQ(file->input(op, 0).zero_point, file->output(op).zero_point);
  }
}

TEST(ExportTflite, NumbersComeAndGoUnlessCodesAreWanted) {
  const auto lenet = tflite_int8(tflite_network("lenet5", 1, 28), torch::randn({4, 1, 28, 28}));
  const File file = exported(*lenet);
  EXPECT_EQ(file->tensor(file->inputs.at(0)).type, kFloat32Type);
  EXPECT_EQ(file->tensor(file->outputs.at(0)).type, kFloat32Type);
  EXPECT_EQ(file->of(kQuantize).size(), 1);
  EXPECT_EQ(file->of(kDequantize).size(), 1);
}

TEST(ExportTflite, Int8ResidualNetworksAreIntegersThroughout) {
  const auto resnet = tflite_int8(tflite_network("resnet8", 3, 32), torch::randn({4, 3, 32, 32}));
  const File file = exported(*resnet, {.integer_io = true});
  EXPECT_FALSE(file->of(kAdd).empty());
  EXPECT_EQ(file->of(kAveragePool).size(), 1);
  EXPECT_TRUE(file->of(kMean).empty());
  for (const TfliteOperator& op : file->operators) EXPECT_EQ(file->output(op).type, kInt8Type) << op.code;
}

TEST(ExportTflite, CodesFromZeroAreMovedBy128) {
  const auto lenet =
      tflite_int8(tflite_network("lenet5", 1, 28), torch::randn({4, 1, 28, 28}), quant::Recipe::x86_int8());
  const File file = exported(*lenet, {.integer_io = true});
  const TfliteTensor& input = file->tensor(file->inputs.at(0));
  const graph::Attribute* zero = lenet->graph().find_attribute("quant.input.zero_point");
  ASSERT_NE(zero, nullptr);
  EXPECT_EQ(input.zero_point, std::vector<int64_t>{zero->tensor.item<int64_t>() - 128});
  // The last layer of this profile ends in float, so it is one.
  EXPECT_EQ(file->output(file->of(kFullyConnected).back()).type, kFloat32Type);
}

}  // namespace ulp::test
