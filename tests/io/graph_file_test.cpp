// Captured models in files.
#include "ulp/io/graph_file.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

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

/// A layer that is set up, which a flag says.
struct FlaggedLayer : torch::nn::Module {
  at::Tensor ready = register_buffer("ready", torch::tensor(true));
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 4));
  at::Tensor forward(const at::Tensor& x) { return ready.item<bool>() ? layer(x) : x; }
};

TEST_F(GraphFile, FlagsThatForwardReadsAreHeldToWhatTheyWereAtCapture) {
  FlaggedLayer model;
  const at::Tensor x = torch::randn({3, 4});
  const auto loaded = again(*capture(model, {x}));
  EXPECT_TRUE(torch::equal(loaded->forward(x), model.forward(x)));
  for (at::Tensor& flag : loaded->buffers()) flag.zero_();
  EXPECT_THROW(loaded->forward(x), ulp::Error);
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

/// Bools where operators take any number.
struct Bools : torch::nn::Module {
  torch::nn::Linear layer{4, 4};
  Bools() { register_module("layer", layer); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x), above = (y > 0).eq(true), ones = torch::full_like(y, true, torch::kBool);
    return y.masked_fill(above.ne(false), 0.5) + (y > 1).masked_fill(y > 2, false) * ones;
  }
};

/// A mask of the type of what it multiplies, which autocast lowers.
struct MaskOfItsType : torch::nn::Module {
  MaskOfItsType() { fc = register_module("fc", torch::nn::Linear(4, 3)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = fc(x);
    return (y > 0).to(y.dtype()) * y;
  }
  torch::nn::Linear fc{nullptr};
};

/// A table that forward makes, which capture keeps as a constant, and a buffer of its own.
struct WithConstant : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(2, 3, 3));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(3));
  at::Tensor offset = register_buffer("offset", torch::randn({3, 1, 1}));
  at::Tensor table = torch::linspace(0, 1, 3).view({3, 1, 1});
  at::Tensor forward(const at::Tensor& x) { return norm(conv(x)) * table + offset; }
};

TEST_F(GraphFile, GivesAModuleItsWeights) {
  torch::manual_seed(1);
  auto model = std::make_shared<WithConstant>();
  const auto captured = capture(model, {torch::randn({2, 2, 5, 5})});
  captured->train();
  captured->forward(torch::randn({4, 2, 5, 5}));  // moves the statistics
  io::save_graph(at("model"), *captured);
  const auto constants = std::ranges::count_if(captured->graph().attributes(), [](const auto& one) {
    return one.second.kind == graph::Attribute::Kind::constant;
  });
  EXPECT_EQ(constants, 1);
  auto other = std::make_shared<WithConstant>();
  EXPECT_TRUE(io::load_model(at("model"), *other).ok());
  model->eval();
  other->eval();
  const at::Tensor x = torch::randn({3, 2, 5, 5});
  EXPECT_TRUE(torch::equal(model->forward(x), other->forward(x)));
  EXPECT_EQ(other->norm->num_batches_tracked.item<int64_t>(), 1);
  auto again = capture(*other, {torch::randn({2, 2, 5, 5})});
  EXPECT_TRUE(io::load_model(at("model"), *again).ok());
  // Tied parameters have all their names.
  auto odd = std::make_shared<Odd>(), odder = std::make_shared<Odd>();
  io::save_graph(at("odd"), *capture(odd, {torch::randn({3, 4})}));
  EXPECT_TRUE(io::load_model(at("odd"), *odder).ok());
  EXPECT_TRUE(torch::equal(odd->tied, odder->tied));
}

TEST_F(GraphFile, SaysWhyAModuleCannotHaveItsWeights) {
  torch::manual_seed(1);
  auto model = std::make_shared<Odd>();
  io::save_graph(at("odd"), *capture(model, {torch::randn({3, 4})}));
  torch::nn::Linear other(4, 4);
  const at::Tensor before = other->weight.detach().clone();
  try {
    io::load_model(at("odd"), *other);
    ADD_FAILURE() << "expected an error";
  } catch (const FileError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("missing: weight"), std::string::npos) << text;
    EXPECT_NE(text.find("a captured model, which load_graph() reads"), std::string::npos) << text;
  }
  EXPECT_TRUE(torch::equal(other->weight, before));
  EXPECT_FALSE(io::load_model(at("odd"), *other, /*strict=*/false).ok());
  io::save_tensors(at("lies"), {{"weight", torch::randn({4, 4})}}, {{io::kGraphKey, "{\"attributes\": 3}"}});
  EXPECT_THROW(io::load_model(at("lies"), *other), FileError);
}

TEST_F(GraphFile, TypesOfValuesComeBack) {
  MaskOfItsType model;
  const std::vector<at::Tensor> inputs{torch::randn({2, 4})};
  const auto captured = ulp::capture(model, inputs);
  EXPECT_NE(listing(captured->graph()).find("dtype=dtype(%addmm)"), std::string::npos);
  expect_same(*captured, *again(*captured), inputs);
}

TEST_F(GraphFile, BoolsAsNumbersComeBack) {
  torch::manual_seed(1);
  Bools model;
  const auto captured = capture(model, {torch::randn({3, 4})});
  expect_same(*captured, *again(*captured), {torch::randn({5, 4})});
}

/// A graph of an input x of four features, which `finish` gives a result.
std::shared_ptr<graph::GraphModule> make_graph(
    const std::function<graph::Argument(graph::Graph&, graph::Value*)>& finish) {
  auto graph = std::make_shared<graph::Graph>();
  graph::Value* x = graph->add_input("x", 0);
  x->meta = graph::TensorMeta{at::kFloat, {{1, 1, 0}, {0, 1, 4}}};
  graph->set_output(finish(*graph, x));
  return std::make_shared<graph::GraphModule>(graph);
}

using AttributeKind = graph::Attribute::Kind;

TEST_F(GraphFile, ComplexParametersComeBack) {
  const auto model = make_graph([](graph::Graph& graph, graph::Value* x) {
    const at::Tensor w = torch::randn({4}, torch::kComplexFloat).set_requires_grad(true);
    graph.set_attribute("w", {AttributeKind::parameter, w});
    return graph.call("aten::abs", {graph.call("aten::mul.Tensor", {x, graph.attribute("w")})->output()})
        ->output();
  });
  expect_same(*model, *again(*model), {torch::randn({5, 4})});
}

TEST_F(GraphFile, NamesOfOneMemoryKeepGradientsOfTheirOwn) {
  for (const std::string constant : {"before", "later"}) {  // the parameter's name is between the two
    const auto model = make_graph([&](graph::Graph& graph, graph::Value* x) {
      const at::Tensor w = torch::ones({4}).set_requires_grad(true);
      if (constant == "before") graph.set_attribute(constant, {AttributeKind::constant, w.detach()});
      graph.set_attribute("learns", {AttributeKind::parameter, w});
      graph.set_attribute("tied", {AttributeKind::parameter, w});
      if (constant == "later") graph.set_attribute(constant, {AttributeKind::constant, w.detach()});
      graph::Value* y = x;
      for (const std::string& name : {std::string("learns"), constant})
        y = graph.call("aten::mul.Tensor", {y, graph.attribute(name)})->output();
      return y;
    });
    const auto loaded = again(*model);
    SCOPED_TRACE(constant);
    expect_same(*model, *loaded, {torch::ones({2, 4})});
    EXPECT_TRUE(loaded->named_parameters()["learns"].grad().equal(torch::full({4}, 2.0)));
    EXPECT_TRUE(loaded->named_parameters()["learns"].is_same(loaded->named_parameters()["tied"]));
    const at::Tensor kept = loaded->graph().find_attribute(constant)->tensor;
    EXPECT_FALSE(kept.requires_grad());
    EXPECT_TRUE(kept.is_alias_of(loaded->named_parameters()["learns"]));
  }
}

TEST_F(GraphFile, CallsMayHaveTheNamesOfTensors) {
  const auto model = make_graph([](graph::Graph& graph, graph::Value* x) {
    graph::Value* first = graph.call("aten::relu", {x}, nullptr, "w")->output();
    graph.set_attribute("w", {AttributeKind::buffer, torch::randn({4})});
    return graph.call("aten::mul.Tensor", {first, graph.attribute("w")})->output();
  });
  expect_same(*model, *again(*model), {torch::randn({5, 4})});
}

TEST_F(GraphFile, DenseStridesComeBack) {
  torch::manual_seed(1);
  const std::vector<at::Tensor> tensors = {
      torch::randn({2, 3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast3d),
      torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
      torch::randn({5, 1, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
      torch::randn({3, 4}).t(),
      torch::randn({2, 1, 3, 4}).permute({3, 0, 2, 1}),
      torch::randn({3, 4})};
  const auto model = make_graph([&](graph::Graph& graph, graph::Value* x) {
    for (size_t i = 0; i < tensors.size(); ++i)
      graph.set_attribute("t" + std::to_string(i), {AttributeKind::buffer, tensors[i]});
    graph.set_attribute("tied", {AttributeKind::parameter, tensors[3].detach().set_requires_grad(true)});
    return x;
  });
  const auto loaded = again(*model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = loaded->graph().find_attribute("t" + std::to_string(i))->tensor;
    EXPECT_EQ(tensor.strides(), tensors[i].strides()) << i;
    EXPECT_TRUE(tensor.equal(tensors[i])) << i;
  }
  EXPECT_TRUE(loaded->named_parameters()["tied"].is_alias_of(loaded->graph().find_attribute("t3")->tensor));
}

TEST_F(GraphFile, TensorsWithGapsBecomeContiguous) {
  const at::Tensor columns = torch::arange(12.0).view({3, 4}).slice(1, 0, 2);
  const auto model = make_graph([&](graph::Graph& graph, graph::Value* x) {
    graph.set_attribute("columns", {AttributeKind::buffer, columns});
    graph.set_attribute("same", {AttributeKind::buffer, torch::ones({1}).expand({3})});
    return x;
  });
  const auto loaded = again(*model);
  EXPECT_TRUE(loaded->graph().find_attribute("columns")->tensor.equal(columns));
  EXPECT_TRUE(loaded->graph().find_attribute("same")->tensor.equal(torch::ones({3})));
}

TEST_F(GraphFile, GraphsThatNobodyCouldReadAreNotSaved) {
  write("model", "the model of before");
  const auto refused = [&](const std::string& says, const auto& finish) {
    const auto model = make_graph(finish);
    try {
      io::save_graph(at("model"), *model);
      ADD_FAILURE() << "saved; expected a refusal with: " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("[io.save_graph]"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
    EXPECT_EQ(read("model"), "the model of before");
  };
  refused("at most 16 deep", [](graph::Graph&, graph::Value* x) {
    graph::Argument result = x;
    for (int i = 0; i < 20; ++i) result = graph::Argument::tuple({result});
    return result;
  });
  refused("aten::_reshape_alias", [](graph::Graph& graph, graph::Value* x) {
    const c10::IValue sizes(std::vector<int64_t>{2, 2}), strides(std::vector<int64_t>{2, 1});
    return graph::Argument(graph.call("aten::_reshape_alias", {x, sizes, strides})->output());
  });
  refused("at most 100 dots", [](graph::Graph& graph, graph::Value* x) {
    std::string name = "w";
    for (int i = 0; i < 101; ++i) name = "a." + name;
    graph.set_attribute(name, {AttributeKind::buffer, torch::ones({4})});
    return graph::Argument(x);
  });
  refused("at most 10000 tensors", [](graph::Graph& graph, graph::Value* x) {
    for (int i = 0; i <= 10000; ++i)
      graph.set_attribute(std::to_string(i), {AttributeKind::constant, torch::ones({})});
    return graph::Argument(x);
  });
}

TEST_F(GraphFile, SavingLeavesTheModelAlone) {
  const at::Tensor w = torch::ones({4}).set_requires_grad(true), frozen = w.detach();
  const auto model = make_graph([&](graph::Graph& graph, graph::Value* x) {
    graph.set_attribute("frozen", {AttributeKind::constant, frozen});
    graph.set_attribute("w", {AttributeKind::parameter, w});
    return graph.call("aten::mul.Tensor", {x, graph.attribute("w")})->output();
  });
  again(*model);
  EXPECT_TRUE(w.requires_grad());
  EXPECT_FALSE(frozen.requires_grad());
  model->forward({torch::ones({2, 4})}).sum().backward();
  EXPECT_TRUE(w.grad().equal(torch::full({4}, 2.0)));
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
  refused([](auto& json) { json["version"] = 3; }, "version 1 or 2");
  refused([](auto& json) { json["version"] = 2; }, "batch");
  refused(
      [](auto& json) {
        json["version"] = 2;
        json["batch"] = {{"min", 8}, {"max", 4}};
      },
      "expected a range of batch sizes, got 8 to 4");
  refused([](auto& json) { json["calls"][0]["target"] = "aten::from_file"; }, "only computes");
  // These loop for as long as a number says, or trust tables.
  for (const char* op :
       {"aten::special_laguerre_polynomial_l.n_scalar", "aten::special_zeta", "aten::polygamma",
        "aten::quantized_lstm_cell", "aten::promote_types", "aten::choose_qparams_optimized"})
    refused([&](auto& json) { json["calls"][0]["target"] = op; }, "only computes");
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
