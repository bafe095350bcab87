#include "ulp/app/model_io/model_file.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/app/train/workload.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/safetensors.h"
#include "ulp/io/tokenizer/train_tokenizer.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::app {
namespace {

/// What loading says of a file with one tensor and this description.
std::string said_of(const ModelSpec& spec, std::vector<int64_t> stored) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  io::save_tensors(path, {{"weight", torch::zeros(stored)}}, {{kModelSpecKey, spec.to_json()}});
  return ulp::test::error_of([&] { load_model_file(path); });
}

TEST(ModelFile, SizesThatNoStoredTensorHasAreRefusedBeforeTheNetworkIsMade) {
  const ModelSpec mlp{.name = "mlp", .image_size = 2048};  // would take 2 GB
  EXPECT_SAYS(said_of(mlp, {10}), "2048 x 2048 pixels");
  EXPECT_SAYS(said_of(mlp, {65536}), "2048 x 2048 pixels");
  EXPECT_SAYS(said_of(mlp, {int64_t{1} << 22, 0}), "num_classes");  // an empty tensor says nothing
  EXPECT_SAYS(said_of({.name = "lenet5", .image_size = 2000}, {10}), "2000 x 2000 pixels");
  EXPECT_SAYS(said_of({.name = "resnet20", .num_classes = 65536}, {10}), "num_classes of at most 10");
  EXPECT_SAYS(said_of({.name = "resnet20", .in_channels = 4096}, {10}), "in_channels of at most 10");
  EXPECT_SAYS(said_of({.name = "resnet20", .image_size = 65536}, {10}), "in_channels * image_size^2");
  // What fits is refused for the missing tensors.
  EXPECT_SAYS(said_of({.name = "resnet20", .image_size = 512}, {10}), "conv1");
  EXPECT_SAYS(said_of({.name = "resnet20", .in_channels = 3, .image_size = 1200}, {10}), "conv1");
}

TEST(ModelFile, NetworksOfEverySizeComeBack) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  for (const char* name : {"lenet5", "mlp"}) {
    for (const int64_t image_size :
         {12, 20, 28, 31, 32, 33, 64, 400}) {  // the growth is looked at from 362 on
      const ModelSpec spec{.name = name, .num_classes = 3, .image_size = image_size};
      save_model_file(path, *make_network(spec).module, spec);
      EXPECT_EQ(load_model_file(path).spec.image_size, image_size);
    }
  }
}

TEST(ModelFile, CapturedModelsComeBackAsTheyWere) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const ModelSpec spec{.name = "lenet5", .num_classes = 3, .image_size = 28};
  save_model_file(path, *make_network(spec).module, spec);
  const LoadedModel model = load_model_file(path);
  const at::Tensor images = torch::randn({3, 1, 28, 28}), expected = model.forward(images);
  const std::filesystem::path stored = folder.path() / "graph.safetensors";
  save_model_file(stored, *model.graph, spec);
  const LoadedModel again = load_model_file(stored);
  EXPECT_EQ(again.spec.name, "lenet5");
  EXPECT_TRUE(again.forward(images).equal(model.graph->forward(images)));
  EXPECT_TRUE(again.forward(images).allclose(expected));
  const Network network = load_network(stored);
  EXPECT_EQ(network.module->parameters().size(), make_network(spec).module->parameters().size());
  EXPECT_TRUE(network.forward({images, {}}).equal(again.forward(images)));
  // A description of other images.
  io::TensorFile file = io::load_tensors(stored);
  ModelSpec other = spec;
  other.image_size = 65536;
  file.metadata[kModelSpecKey] = other.to_json();
  io::save_tensors(stored, file.tensors, file.metadata);
  EXPECT_SAYS(ulp::test::error_of([&] { load_model_file(stored); }), "what its description says");
}

TEST(ModelFile, CapturedTextsComeBackAtAnyLength) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const ModelSpec spec{.name = "lstm", .kind = NetworkKind::language, .num_classes = 256, .max_length = 12};
  save_model_file(path, *make_network(spec).module, spec);
  const LoadedModel model = load_text_model_file(path);
  save_model_file(folder.path() / "graph", *model.graph, spec);
  const LoadedModel again = load_text_model_file(folder.path() / "graph");
  const at::Tensor tokens = torch::randint(1, 200, {2, 7}, torch::kLong);
  EXPECT_TRUE(again.forward(tokens).equal(model.graph->forward(tokens)));
}

// Such texts are captured at a part of their length.
TEST(ModelFile, LongTextsAreComputedAtTheirLongest) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const ModelSpec spec{.name = "llama", .kind = NetworkKind::language, .num_classes = 256, .max_length = 600};
  const Network network = make_network(spec);
  network.module->eval();
  save_model_file(path, *network.module, spec);
  const LoadedModel model = load_text_model_file(path);
  const torch::NoGradGuard no_grad;
  for (const int64_t length : {1, 33, 599, 600}) {
    const at::Tensor tokens = torch::randint(1, 200, {2, length}, torch::kLong);
    EXPECT_TRUE(model.graph->forward(tokens).allclose(network.forward({tokens, {}}), 1e-5, 1e-5)) << length;
  }
  EXPECT_EQ(std::as_const(*model.graph).graph().free.at(0).max, 600);
}

TEST(ModelFile, ALanguageHasAsManyClassesAsTokens) {
  auto file =
      nlohmann::json::parse(io::train_tokenizer("to be or not to be\n", {.vocab_size = 260}).to_json());
  file["added_tokens"].push_back({{"id", 70000}, {"content", "<far>"}, {"special", true}});
  ModelSpec spec{.name = "gpt2", .kind = NetworkKind::language, .max_length = 12};
  spec.tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::from_json(file.dump()));
  spec.num_classes = spec.vocab_size();
  const ModelSpec again = ModelSpec::from_json(spec.to_json());
  EXPECT_EQ(again.num_classes, 70001);
  EXPECT_EQ(again.tokenizer->to_json(), spec.tokenizer->to_json());
  spec.num_classes = 10;
  EXPECT_ERROR(ModelSpec::from_json(spec.to_json()),
               "expected num_classes of at least 70001, the tokens of the tokenizer, got 10");
  spec.kind = NetworkKind::text;  // whose classes are those of its labels
  EXPECT_EQ(ModelSpec::from_json(spec.to_json()).num_classes, 10);
}

TEST(ModelFile, DescriptionsOfWrongSizesNameThem) {
  const auto said = [](const ModelSpec& spec) {
    return ulp::test::error_of([&] { ModelSpec::from_json(spec.to_json()); });
  };
  EXPECT_SAYS(said({.num_classes = 65537}), "num_classes in 1..65536, got 65537");
  EXPECT_SAYS(said({.in_channels = 0}), "in_channels in 1..65536, got 0");
  EXPECT_SAYS(said({.image_size = -1}), "image_size in 1..65536, got -1");
  EXPECT_SAYS(said({.kind = NetworkKind::language, .num_classes = 256}), "max_length in 1..65536, got 0");
}

TEST(ModelFile, PicklesAreRefusedWithTheWayToConvert) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "weights.bin";
  const std::vector<char> bytes = torch::jit::pickle_save(torch::ones({3}));
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  EXPECT_SAYS(ulp::test::error_of([&] { load_any_model_file(path); }), "which holds pickled weights");
  EXPECT_SAYS(ulp::test::error_of([&] { read_contents(path); }), "import torch, safetensors.torch");
}

TEST(ModelFile, TorchScriptIsShownAndTrains) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "module.pt";
  torch::jit::Module module("Scaled");
  module.register_parameter("factor", torch::full({1}, 2.0F).requires_grad_(), /*is_buffer=*/false);
  module.define("def forward(self, x):\n  return (self.factor * x).flatten(1)\n");
  module.save(path.string());
  const FileContents contents = read_contents(path);
  EXPECT_EQ(contents.kind, "TorchScript module (--graph shows its graph)");
  ASSERT_EQ(contents.tensors.rows.size(), 1U);
  const ModelSpec images{.in_channels = 1, .image_size = 2, .mean = {0}, .std = {1}};
  const Network network = load_network(path, images);
  const at::Tensor x = torch::ones({3, 1, 2, 2});
  EXPECT_TRUE(network.forward({x, {}}).equal(torch::full({3, 4}, 2.0F)));
  network.forward({x, {}}).sum().backward();
  EXPECT_EQ(network.module->parameters().at(0).grad().item<float>(), 12);
}

/// Code 0 of e8m0 is 2^-127; the other types of one byte have a zero there.
TEST(ModelFile, PowersOfTwoHaveNoShareOfZeros) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "scales.safetensors";
  const at::Tensor codes = torch::tensor({0, 127, 0, 3}, at::kByte);
  const std::pair<const char*, at::ScalarType> types[] = {{"a_e8m0", at::kFloat8_e8m0fnu},
                                                          {"b_e4m3", at::kFloat8_e4m3fn},
                                                          {"c_e5m2", at::kFloat8_e5m2},
                                                          {"d_u8", at::kByte},
                                                          {"e_i8", at::kChar}};
  io::NamedTensors tensors;
  for (const auto& [name, type] : types) tensors.emplace_back(name, codes.view(type));
  io::save_tensors(path, tensors, {});
  for (const auto& row : read_contents(path).tensors.rows) {
    if (std::get<std::string>(row.at(0)) == "a_e8m0") {
      EXPECT_EQ(std::get<std::string>(row.at(1)), "F8_E8M0");
      EXPECT_TRUE(std::holds_alternative<std::monostate>(row.at(4)));
    } else {
      EXPECT_EQ(std::get<double>(row.at(4)), 50.0) << std::get<std::string>(row.at(0));
    }
  }
}

/// Drawn codes of every type of one byte: zeros are those that LibTorch reads as 0.
TEST(ModelFile, SharesOfZerosOfRandomCodes) {
  torch::manual_seed(3);
  const ulp::test::TemporaryFolder folder;
  const at::ScalarType types[] = {
      at::kFloat8_e8m0fnu,  at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
      at::kFloat8_e5m2fnuz, at::kByte,          at::kChar};
  for (int draw = 0; draw < 12; ++draw) {
    const std::filesystem::path path = folder.path() / ("codes" + std::to_string(draw) + ".safetensors");
    io::NamedTensors tensors;
    std::vector<double> shares;
    for (const at::ScalarType type : types) {
      // Codes 0 and 128 stand for zeros, or for none of them, in these types.
      const at::Tensor any = torch::randint(256, {64}, at::kByte),
                       codes = torch::where(torch::rand({64}) < 0.1 * draw,
                                            torch::randint(2, {64}, at::kByte) * 128, any);
      const at::Tensor values = codes.view(type);
      shares.push_back(100.0 * (values.to(at::kFloat) == 0).sum().item<double>() / 64);
      tensors.emplace_back("t" + std::to_string(tensors.size()), values);
    }
    io::save_tensors(path, tensors, {});
    const auto rows = read_contents(path).tensors.rows;
    ASSERT_EQ(rows.size(), shares.size());
    for (const auto& row : rows) {
      const size_t at = std::stoul(std::get<std::string>(row.at(0)).substr(1));
      if (types[at] == at::kFloat8_e8m0fnu) {
        EXPECT_TRUE(std::holds_alternative<std::monostate>(row.at(4)));
      } else {
        EXPECT_NEAR(std::get<double>(row.at(4)), shares[at], 1e-9) << types[at];
      }
    }
  }
}

TEST(ModelFile, QuantizedModelsAreNoFloatModels) {
  const ulp::test::TemporaryFolder folder;
  const ModelSpec spec{.name = "mlp", .image_size = 4};
  const auto graph = captured(make_network(spec), spec).module;
  const auto& floats = dynamic_cast<const graph::GraphModule&>(*graph);
  expect_float(floats, "model.onnx");
  const auto codes = quant::quantize_weights(std::dynamic_pointer_cast<graph::GraphModule>(graph));
  EXPECT_SAYS(ulp::test::error_of([&] { expect_float(*codes, "model.onnx"); }),
              "got 'model.onnx', which is quantized already: `ulp lower`");
}

TEST(ModelFile, MemoryAsksForTheInputsOfAnOnnxFile) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.onnx";
  const ModelSpec spec{.name = "lenet5", .image_size = 24};
  const auto graph = std::dynamic_pointer_cast<graph::GraphModule>(captured(make_network(spec), spec).module);
  graph->eval();
  exchange::export_onnx(*graph, path);  // without a description
  const Workload model = find_workload(path.string(), {});
  const train::TaskBatch batch = model.draw({.batch = 3});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{3, 1, 24, 24}));
  EXPECT_EQ(model.make().forward(batch).sizes(), (std::vector<int64_t>{3, 10}));
}

}  // namespace
}  // namespace ulp::app
