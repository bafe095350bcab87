// ONNX files of float models: structure, names, sizes, refusals. What other runtimes compute from them is compared by
// bench/peers/onnx_check.py.
#include "ulp/exchange/export_onnx.h"

#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <set>

#include "error_of.h"
#include "onnx_reader.h"
#include "temporary_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;

/// A root module with a forward of any kind.
struct OnnxNet : torch::nn::Module {
  std::function<at::Tensor(const at::Tensor&)> body;
  at::Tensor forward(at::Tensor x) { return body(x); }
};

std::shared_ptr<graph::GraphModule> onnx_captured(const std::shared_ptr<OnnxNet>& net, const at::Tensor& x) {
  net->eval();
  auto module = capture(net, {x});
  module->eval();
  return module;
}

/// A function without parameters.
std::shared_ptr<graph::GraphModule> onnx_function(std::function<at::Tensor(const at::Tensor&)> body,
                                                  const at::Tensor& x) {
  auto net = std::make_shared<OnnxNet>();
  net->body = std::move(body);
  return onnx_captured(net, x);
}

std::shared_ptr<graph::GraphModule> onnx_network(const std::string& name, int64_t channels, int64_t side) {
  const auto model = models::make_model(name, {.in_channels = channels, .image_size = side});
  model->eval();
  return capture(*model, {torch::zeros({2, channels, side, side})});
}

/// Every name is made once, before it is read, and every result is there.
void expect_sound(const ReadModel& model) {
  std::set<std::string> known = {""};
  for (const ReadValue& input : model.inputs) EXPECT_TRUE(known.insert(input.name).second) << input.name;
  for (const auto& [name, tensor] : model.initializers) EXPECT_TRUE(known.insert(name).second) << name;
  for (const ReadNode& node : model.nodes) {
    for (const std::string& input : node.inputs)
      EXPECT_TRUE(known.contains(input)) << input << " of " << node.name;
    for (const std::string& output : node.outputs) EXPECT_TRUE(known.insert(output).second) << output;
  }
  for (const ReadValue& output : model.outputs) EXPECT_TRUE(known.contains(output.name)) << output.name;
}

using Texts = std::vector<std::string>;
using Ints = std::vector<int64_t>;

}  // namespace

TEST(ExportOnnx, WritesVersionsProducerAndFreeBatch) {
  const auto mlp = onnx_network("mlp", 1, 28);
  const ReadModel model = read_onnx(export_onnx(*mlp, {.opset = 21, .metadata = {{"made", "here"}}}));
  EXPECT_EQ(model.ir, 10);
  EXPECT_EQ(model.opset, 21);
  EXPECT_EQ(model.producer, "ulp");
  EXPECT_EQ(model.metadata.at("made"), "here");
  EXPECT_EQ(model.inputs.at(0).shape, (Texts{"batch", "1", "28", "28"}));
  EXPECT_EQ(model.inputs[0].type, 1);
  EXPECT_EQ(model.outputs.at(0).shape, (Texts{"batch", "10"}));
  const ReadModel old = read_onnx(export_onnx(*mlp, {.opset = 17}));
  EXPECT_EQ(old.ir, 8);
  EXPECT_EQ(old.opset, 17);
  EXPECT_ERROR(export_onnx(*mlp, {.opset = 16}), "expected an opset of 17 to 21, got 16");
  EXPECT_ERROR(export_onnx(*mlp, {.opset = 22}), "got 22");
}

TEST(ExportOnnx, KeepsTheNamesAndBytesOfParameters) {
  const auto lenet = onnx_network("lenet5", 1, 28);
  const ReadModel model = read_onnx(export_onnx(*lenet));
  for (const auto& item : lenet->named_parameters()) {
    const auto found = model.initializers.find(item.key());
    ASSERT_NE(found, model.initializers.end()) << item.key();
    EXPECT_EQ(found->second.dims, item.value().sizes().vec());
    const at::Tensor dense = item.value().detach().contiguous();
    EXPECT_EQ(found->second.raw,
              std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()));
  }
  ASSERT_EQ(model.of("Gemm").size(), 3);
  EXPECT_EQ(model.of("Gemm")[0].attributes.at("transB").i, 1);
  EXPECT_EQ(model.of("Gemm")[0].inputs[1], "fc1.weight");
}

TEST(ExportOnnx, WritesTheAttributesOfLayers) {
  auto net = std::make_shared<OnnxNet>();
  auto conv = net->register_module(
      "conv",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(4, 8, {3, 5}).stride({2, 1}).padding({1, 2}).dilation({1, 2}).groups(2)));
  auto norm =
      net->register_module("norm", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(8).eps(1e-3)));
  net->body = [&](const at::Tensor& x) {
    return torch::avg_pool2d(norm->forward(conv->forward(x)), {2, 2}, {1, 1}, {1, 0}, /*ceil_mode=*/false,
                             /*count_include_pad=*/false);
  };
  const ReadModel model = read_onnx(export_onnx(*onnx_captured(net, torch::zeros({2, 4, 16, 16}))));
  const auto made = model.of("Conv").at(0).attributes;
  EXPECT_EQ(made.at("kernel_shape").ints, (Ints{3, 5}));
  EXPECT_EQ(made.at("strides").ints, (Ints{2, 1}));
  EXPECT_EQ(made.at("pads").ints, (Ints{1, 2, 1, 2}));
  EXPECT_EQ(made.at("dilations").ints, (Ints{1, 2}));
  EXPECT_EQ(made.at("group").i, 2);
  EXPECT_EQ(made.at("group").type, 2);
  EXPECT_EQ(model.of("BatchNormalization").at(0).attributes.at("epsilon").f, 1e-3F);
  EXPECT_EQ(model.of("BatchNormalization")[0].inputs.at(3), "norm.running_mean");
  const auto pool = model.of("AveragePool").at(0).attributes;
  EXPECT_EQ(pool.at("pads").ints, (Ints{1, 0, 1, 0}));
  EXPECT_EQ(pool.at("count_include_pad").i, 0);
}

TEST(ExportOnnx, GivesTheSameBytesEachTimeAndInAFile) {
  const auto network = onnx_network("shufflenet_v2_x1_0", 1, 28);
  const std::string bytes = export_onnx(*network);
  EXPECT_EQ(export_onnx(*network), bytes);
  const TemporaryFolder folder;
  export_onnx(*network, folder / "m.onnx");
  std::ifstream in(folder / "m.onnx", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), bytes);
  EXPECT_ERROR(export_onnx(*network, folder / "no" / "m.onnx"), "m.onnx");
}

// The larger ones are of the same ops; bench/onnx_networks writes all.
TEST(ExportOnnx, TakesTheSmallReferenceNetworks) {
  for (const char* name : {"mlp", "lenet5", "binary_lenet5", "resnet8", "shufflenet_v2_x1_0", "unet"}) {
    SCOPED_TRACE(name);
    const auto network = onnx_network(name, 3, 32);
    for (const int64_t opset : {17, 21}) expect_sound(read_onnx(export_onnx(*network, {.opset = opset})));
  }
}

TEST(ExportOnnx, TakesTextNetworksOfFreeLength) {
  for (const std::string& name : models::text_model_names()) {
    for (const models::TextTask task : models::text_model_tasks(name)) {
      SCOPED_TRACE(name);
      const auto model = models::make_text_model(
          name, {.task = task, .max_length = 16, .num_classes = 3, .padding_token = 0});
      model->eval();
      graph::CaptureOptions options;
      options.free = {{0, 1, "time"}};
      const auto network = capture(model, {torch::ones({2, 16}, torch::kLong)}, options);
      network->eval();
      const ReadModel made = read_onnx(export_onnx(*network));
      expect_sound(made);
      EXPECT_EQ(made.inputs.at(0).shape, (Texts{"batch", "time"}));
      EXPECT_EQ(made.inputs[0].type, 7);
      EXPECT_EQ(made.outputs.at(0).shape.front(), "batch");
    }
  }
}

TEST(ExportOnnx, SlicesOfAFreeLengthHaveTheirSizeBelowTheBound) {
  auto net = std::make_shared<OnnxNet>();
  net->body = [](const at::Tensor& x) { return x.slice(1, 0, 10).unsqueeze(0) * 2; };
  graph::CaptureOptions options;
  options.free = {{0, 1, "time"}};
  const auto network = capture(net, {torch::ones({2, 32, 3})}, options);
  network->eval();
  const auto again = exchange::import_onnx(export_onnx(*network), "written.onnx");
  const torch::NoGradGuard no_grad;
  for (const int64_t time : {1, 5, 9, 10, 11, 32}) {
    const at::Tensor x = torch::randn({2, time, 3});
    EXPECT_TRUE(torch::equal(again->forward_all({x}).at(0), network->forward(x))) << time;
  }
}

TEST(ExportOnnx, ReordersTheGatesOfAnLstm) {
  auto net = std::make_shared<OnnxNet>();
  auto lstm = net->register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 2).batch_first(true)));
  net->body = [&](const at::Tensor& x) { return std::get<0>(lstm->forward(x)); };
  const ReadModel model = read_onnx(export_onnx(*onnx_captured(net, torch::zeros({2, 5, 3}))));
  const ReadNode node = model.of("LSTM").at(0);
  EXPECT_EQ(node.attributes.at("hidden_size").i, 2);
  const ReadTensor& weight = model.initializers.at(node.inputs.at(1));
  EXPECT_EQ(weight.dims, (Ints{1, 8, 3}));
  const at::Tensor ours = lstm->named_parameters()["weight_ih_l0"].detach();
  const std::vector<float> theirs = weight.as<float>();
  const Ints rows = {0, 1, 6, 7, 2, 3, 4, 5};  // i o f g of i f g o
  for (size_t row = 0; row < rows.size(); ++row) {
    for (int64_t c = 0; c < 3; ++c)
      EXPECT_EQ(theirs[row * 3 + static_cast<size_t>(c)], ours[rows[row]][c].item<float>());
  }
}

TEST(ExportOnnx, SpellsGeluOutWhereTheOpsetHasNone) {
  const auto net = onnx_function([](const at::Tensor& x) { return torch::gelu(x); }, torch::zeros({2, 3}));
  EXPECT_EQ(read_onnx(export_onnx(*net)).of("Gelu").size(), 1);
  const ReadModel old = read_onnx(export_onnx(*net, {.opset = 17}));
  EXPECT_EQ(old.of("Gelu").size(), 0);
  EXPECT_EQ(old.of("Erf").size(), 1);
}

TEST(ExportOnnx, MovesTheDimensionsOfAMeanWithTheOpset) {
  const auto net = onnx_function([](const at::Tensor& x) { return x.mean({1}); }, torch::zeros({2, 3, 4}));
  const ReadModel model = read_onnx(export_onnx(*net)), old = read_onnx(export_onnx(*net, {.opset = 17}));
  EXPECT_EQ(model.initializers.at(model.of("ReduceMean").at(0).inputs.at(1)).as<int64_t>(), Ints{1});
  EXPECT_EQ(old.of("ReduceMean").at(0).attributes.at("axes").ints, Ints{1});
}

/// ONNX Runtime 1.31.1 loses a border of +0 that a max pool reads, and with it the zeros beside negative
/// numbers.
TEST(ExportOnnx, ABorderOfZerosBeforeAMaxPoolIsMinusZero) {
  const auto border = [](const std::function<at::Tensor(const at::Tensor&)>& body) {
    const auto net = onnx_function(body, torch::zeros({2, 3, 6, 6}));
    const ReadModel model = read_onnx(export_onnx(*net));
    return model.initializers.at(model.of("Pad").at(0).inputs.at(2)).as<float>().at(0);
  };
  const auto padded = [](const at::Tensor& x, double value) {
    return torch::constant_pad_nd(x, {1, 1, 1, 1}, value);
  };
  const at::Tensor weight = torch::ones({3, 3, 3, 3});
  const float pooled = border([&](const at::Tensor& x) { return torch::max_pool2d(padded(x, 0), 3); });
  EXPECT_TRUE(pooled == 0 && std::signbit(pooled));
  EXPECT_EQ(border([&](const at::Tensor& x) { return torch::max_pool2d(padded(x, 2.5), 3); }), 2.5F);
  const float convolved =
      border([&](const at::Tensor& x) { return torch::max_pool2d(torch::conv2d(padded(x, 0), weight), 3); });
  EXPECT_TRUE(convolved == 0 && !std::signbit(convolved));
}

TEST(ExportOnnx, ResultsThatAreInputsGetNamesOfTheirOwn) {
  const auto net = onnx_function([](const at::Tensor& x) { return x.contiguous(); }, torch::zeros({2, 3}));
  const ReadModel model = read_onnx(export_onnx(*net));
  EXPECT_EQ(model.of("Identity").size(), 1);
  EXPECT_NE(model.outputs.at(0).name, model.inputs.at(0).name);
}

/// A result of two parts, of which eval mode has the first.
struct OnnxParts {
  at::Tensor scores, auxiliary;
  ULP_TENSOR_FIELDS(scores, auxiliary)
};

TEST(ExportOnnx, LeavesOutResultsOfTrainModeAlone) {
  struct Net : torch::nn::Module {
    Net() { fc = register_module("fc", torch::nn::Linear(4, 3)); }
    OnnxParts forward(const at::Tensor& x) {
      OnnxParts result;
      result.scores = fc(x);
      if (is_training()) result.auxiliary = result.scores.tanh();
      return result;
    }
    torch::nn::Linear fc{nullptr};
  } net;
  const auto captured = capture(net, {torch::randn({2, 4})});
  const ReadModel model = read_onnx(export_onnx(*captured));
  expect_sound(model);
  ASSERT_EQ(model.outputs.size(), 1U);
  EXPECT_EQ(model.outputs[0].name, "scores");
}

TEST(ExportOnnx, NamesWhatHasNoForm) {
  auto net = std::make_shared<OnnxNet>();
  net->body = [](const at::Tensor& x) { return torch::digamma(torch::lgamma(x)); };
  const std::string error = error_of([&] { export_onnx(*onnx_captured(net, torch::ones({2, 3}))); });
  EXPECT_SAYS(error, "[exchange.export_onnx]");
  EXPECT_SAYS(error,
              "aten::lgamma 'lgamma': no ONNX form is known; the names nearest to it with one are aten::");
  EXPECT_SAYS(error,
              "aten::digamma 'digamma': no ONNX form is known; the names nearest to it with one are aten::");
}

TEST(ExportOnnx, RefusesBfloat16ByName) {
  auto net = std::make_shared<OnnxNet>();
  auto linear = net->register_module("fc", torch::nn::Linear(3, 2));
  net->to(torch::kBFloat16);
  net->body = [&](const at::Tensor& x) { return linear->forward(x); };
  const auto module = onnx_captured(net, torch::zeros({2, 3}, torch::kBFloat16));
  EXPECT_ERROR(export_onnx(*module), "BFloat16");
}

TEST(ExportOnnx, StoresWeightsAsProductsReadThem) {
  for (const std::string& name : models::text_model_names()) {
    SCOPED_TRACE(name);
    const models::TextTask task = models::text_model_tasks(name).front();
    const auto model = models::make_text_model(name, {.task = task, .max_length = 16, .num_classes = 3});
    model->eval();
    const auto network = capture(model, {torch::ones({2, 16}, torch::kLong)});
    network->eval();
    const ReadModel made = read_onnx(export_onnx(*network));
    for (const ReadNode& node : made.of("Transpose"))
      EXPECT_FALSE(made.initializers.contains(node.inputs[0])) << node.inputs[0];
    // Each once, whoever reads it.
    size_t elements = 0, stored = 0;
    for (const auto& item : network->named_parameters())
      elements += static_cast<size_t>(item.value().numel());
    for (const auto& [tensor_name, tensor] : made.initializers) {
      if (network->named_parameters().contains(tensor_name)) stored += tensor.as<float>().size();
    }
    EXPECT_LE(stored, elements);
  }
}

TEST(ExportOnnx, AWeightThatOthersReadIsStoredOnce) {
  auto net = std::make_shared<OnnxNet>();
  auto table = net->register_module("table", torch::nn::Embedding(7, 4));
  net->body = [&](const at::Tensor& ids) { return torch::linear(table->forward(ids), table->weight); };
  const auto module = onnx_captured(net, torch::ones({2, 3}, torch::kLong));
  const ReadModel model = read_onnx(export_onnx(*module));
  EXPECT_EQ(model.of("Transpose").size(), 0);
  ASSERT_EQ(model.of("Gemm").size(), 1);
  EXPECT_EQ(model.of("Gemm")[0].inputs.at(1), "table.weight");
  EXPECT_EQ(model.initializers.at("table.weight").dims, (Ints{7, 4}));
}

TEST(ExportOnnx, RefusesModelsThatOneFileCannotHold) {
  auto graph = std::make_shared<graph::Graph>();
  graph::Value* x = graph->add_input("x");
  x->meta = graph::TensorMeta{.dtype = at::kFloat, .sizes = {{1, 1, 0}}, .channels_last = false};
  // Holds one number; written, it would be 2.4 GB.
  graph->set_attribute("huge", {graph::Attribute::Kind::constant, torch::zeros({1}).expand({600'000'000})});
  graph->set_output(graph->call("aten::add.Tensor", {x, graph->attribute("huge")})->output());
  const graph::GraphModule module(graph);
  EXPECT_ERROR(export_onnx(module), "expected a model below 2 GB");
}

}  // namespace ulp::test
