// Captured models in files.
#include "ulp/io/graph_file.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <random>

#include "temp_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/weights.h"

namespace {

using namespace ulp;

class GraphFile : public TempFolder {
 protected:
  std::shared_ptr<graph::GraphModule> again(const graph::GraphModule& model) {
    io::save_graph(at("model"), model, {{"note", "mine"}});
    EXPECT_EQ(io::load_metadata(at("model")).at("note"), "mine");
    return io::load_graph(at("model"));
  }
};

std::string listing(const graph::Graph& graph) {
  std::ostringstream out;
  out << graph;
  return out.str();
}

/// The same nodes, numbers and gradients, in both modes.
void expect_same(graph::GraphModule& one, graph::GraphModule& other, const std::vector<at::Tensor>& inputs) {
  EXPECT_EQ(listing(one.graph()), listing(other.graph()));
  for (const bool training : {false, true}) {
    std::vector<at::Tensor> results[2];
    int i = 0;
    for (graph::GraphModule* model : {&one, &other}) {
      model->train(training);
      model->zero_grad();
      torch::manual_seed(3);
      results[i] = model->forward_all(inputs);
      if (results[i][0].requires_grad()) results[i][0].sum().backward();
      for (const auto& parameter : model->named_parameters()) {
        const at::Tensor& gradient = parameter->grad();
        results[i].push_back(gradient.defined() ? gradient.clone() : torch::zeros({0}));
      }
      for (const auto& buffer : model->named_buffers()) results[i].push_back(buffer->clone());
      ++i;
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (size_t t = 0; t < results[0].size(); ++t)
      EXPECT_TRUE(results[0][t].sizes() == results[1][t].sizes() &&
                  torch::allclose(results[0][t], results[1][t], 0, 0, /*equal_nan=*/true))
          << "tensor " << t << ", training " << training;
  }
}

TEST_F(GraphFile, ReferenceNetworksComeBack) {
  for (const char* name : {"lenet5", "resnet20", "mobilenet_v2", "shufflenet_v2_x1_0"}) {
    torch::manual_seed(1);
    const auto model = models::make_model(name, {.in_channels = 3, .num_classes = 4, .image_size = 32});
    models::to_channels_last(*model);
    const auto captured = capture(model, {torch::randn({2, 3, 32, 32})});
    SCOPED_TRACE(name);
    expect_same(*captured, *again(*captured), {torch::randn({3, 3, 32, 32})});
  }
}

TEST_F(GraphFile, TextsOfAnyLengthComeBack) {
  for (const std::string& name : models::text_model_names()) {
    torch::manual_seed(1);
    const auto model = models::make_text_model(
        name, {.task = models::text_model_tasks(name).front(), .max_length = 12, .padding_token = -1});
    const auto captured = capture(model, {torch::ones({2, 12}, torch::kLong)}, {.free = {{0, 1, "time"}}});
    SCOPED_TRACE(name);
    const auto loaded = again(*captured);
    expect_same(*captured, *loaded, {torch::randint(1, 200, {3, 7}, torch::kLong)});
    EXPECT_THROW(loaded->forward({torch::ones({2, 13}, torch::kLong)}), Error);
  }
}

/// Parameters that are shared, frozen or empty; numbers that JSON lacks; guards; modes.
struct Odd : torch::nn::Module {
  torch::nn::Linear first{4, 4}, second{4, 4};
  torch::nn::Dropout dropout{0.5};
  at::Tensor tied;
  Odd() {
    register_module("first", first);
    register_module("second", second);
    register_module("dropout", dropout);
    tied = register_parameter("tied", first->weight);
    first->bias.set_requires_grad(false);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    at::Tensor y = torch::linear(second(dropout(first(x))), tied);
    {
      const torch::NoGradGuard guard;
      y = y + x.amax(1, true);
    }
    const at::Tensor hidden = y.masked_fill(y > 0.5, -std::numeric_limits<double>::infinity());
    return {hidden.softmax(1).clamp(c10::nullopt, 0.75), y.split({1, 3}, 1)};
  }
};

TEST_F(GraphFile, OddThingsComeBack) {
  torch::manual_seed(1);
  auto model = std::make_shared<Odd>();
  const auto captured = capture(model, {torch::randn({3, 4})});
  const auto loaded = again(*captured);
  expect_same(*captured, *loaded, {torch::randn({5, 4})});
  const auto named = loaded->named_parameters();
  EXPECT_TRUE(named["first.weight"].is_same(named["tied"]));
  EXPECT_FALSE(named["first.bias"].requires_grad());
}

TEST_F(GraphFile, QuantizedModelsComeBackAndOthersAreRefused) {
  torch::manual_seed(1);
  const auto model = models::make_model("lenet5", {.in_channels = 1, .num_classes = 4, .image_size = 28});
  const at::Tensor x = torch::randn({4, 1, 28, 28});
  const auto captured = capture(model, {x});
  captured->eval();
  const auto prepared = quant::prepare(captured, quant::Recipe::x86_int8());
  prepared->forward({x});
  EXPECT_THROW(io::save_graph(at("prepared"), *prepared), Error);
  EXPECT_FALSE(std::filesystem::exists(at("prepared")));
  const auto converted = quant::convert(prepared);
  const auto loaded = again(*converted);
  EXPECT_EQ(listing(converted->graph()), listing(loaded->graph()));
  EXPECT_TRUE(loaded->forward({x}).equal(converted->forward({x})));
  const auto codes = quant::quantize_weights(captured, {.bits = 4});
  EXPECT_TRUE(again(*codes)->forward({x}).equal(codes->forward({x})));
}

TEST_F(GraphFile, FilesThatLieAreRefused) {
  Odd model;
  const auto captured = capture(model, {torch::randn({3, 4})});
  io::save_graph(at("model"), *captured);
  io::TensorFile file = io::load_tensors(at("model"));
  const std::string text = file.metadata.at(io::kGraphKey);
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change, const std::string& says) {
    nlohmann::json json = nlohmann::json::parse(text);
    change(json);
    io::Metadata metadata = file.metadata;
    metadata[io::kGraphKey] = json.dump();
    io::save_tensors(at("changed"), file.tensors, metadata);
    expect_file_error(says, [&] { io::load_graph(at("changed")); });
  };
  refused([](auto& json) { json["version"] = 2; }, "version 1");
  refused([](auto& json) { json["calls"][0]["target"] = "aten::from_file"; }, "of aten or ulp");
  refused([](auto& json) { json["calls"][0]["target"] = "prim::Print"; }, "of aten or ulp");
  refused([](auto& json) { json["calls"][0]["target"] = "aten::nothing"; }, "aten::nothing");
  refused([](auto& json) { json["calls"][0]["args"].push_back(1); }, "arguments");
  refused([](auto& json) { json["calls"][0]["args"][0] = {{"value", "later"}}; }, "before they are read");
  refused([](auto& json) { json["calls"][0]["args"][0] = "text"; }, "expected a");
  refused([](auto& json) { json["attributes"].erase(0); }, "attribute");
  refused([](auto& json) { json["attributes"][0]["name"] = "none"; }, "expected a tensor 'none'");
  refused([](auto& json) { json["inputs"][0]["batch_dim"] = 7; }, "batch dimension");
  refused([](auto& json) { json["calls"][0]["outputs"][0]["meta"]["dtype"] = "Whole"; }, "dtype");
  refused([](auto& json) { json["calls"][1]["outputs"][0]["name"] = json["calls"][0]["outputs"][0]["name"]; },
          "twice");
  refused([](auto& json) { json.erase("result"); }, "result");
  refused([](auto& json) { json["result"] = {{"value", 3}}; }, "");
  refused([](auto& json) { json = nlohmann::json::array(); }, "");
  // A text that ends early, and bytes that changed: an error, or a graph that verifies.
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = text;
    if (i % 2 == 0)
      damaged.resize(random() % text.size());
    else
      damaged[random() % text.size()] = static_cast<char>(32 + random() % 95);
    io::Metadata metadata = file.metadata;
    metadata[io::kGraphKey] = damaged;
    io::save_tensors(at("changed"), file.tensors, metadata);
    try {
      io::load_graph(at("changed"));
    } catch (const FileError&) {
    }
  }
  io::save_tensors(at("plain"), file.tensors);
  expect_file_error("which holds tensors alone", [&] { io::load_graph(at("plain")); });
  expect_file_error("", [&] { io::load_graph(at("missing")); });
}

}  // namespace
