// Weights in 8 and 4 bits: their codes and scales in the file, bit for bit, and that they come back.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_reader.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/weights/quantized_weight.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;
using Module = std::shared_ptr<graph::GraphModule>;
constexpr int64_t kCodesS8 = 3, kCodesU4 = 21, kCodesS4 = 22;
constexpr int64_t kWords = 11, kWidth = 40, kOut = 5;

struct SmallText : torch::nn::Module {
  torch::nn::Embedding table{kWords, kWidth};
  torch::nn::Linear fc{kWidth, kOut};
  SmallText() {
    register_module("table", table);
    register_module("fc", fc);
  }
  at::Tensor forward(const at::Tensor& ids) { return fc->forward(table->forward(ids)); }
};

Module small_text(const quant::WeightOnlyRecipe& recipe) {
  torch::manual_seed(1);
  SmallText model;
  model.eval();
  const at::Tensor ids = torch::ones({2, 3}, torch::kLong);
  return quant::quantize_weights(capture(model, {ids}), recipe);
}

/// What the graph has as the weight of its layer, f32 [out, in].
at::Tensor weight_of(const Module& module, const std::string& name, int64_t columns) {
  const auto buffers = module->named_buffers();
  const bool nibbles = buffers.contains(name + ".int4");
  const at::Tensor* zero = buffers.find(name + ".zero_point");
  return quant::dequantize_weight(buffers[name + (nibbles ? ".int4" : ".int8")], buffers[name + ".scale"],
                                  zero == nullptr ? std::nullopt : std::optional(*zero), columns);
}

/// A DequantizeLinear of the file by ONNX's formula, for a matrix in blocks along `axis`.
at::Tensor dequantized(const ReadModel& model, const ReadNode& node) {
  const ReadTensor &codes = model.initializers.at(node.inputs[0]),
                   &scale = model.initializers.at(node.inputs[1]);
  const int64_t rows = codes.dims.at(0), columns = codes.dims.at(1);
  const int64_t axis = node.attributes.at("axis").i;
  const int64_t block = node.attributes.contains("block_size") ? node.attributes.at("block_size").i : 0;
  const std::vector<int> nibbles = codes.type == kCodesS8 ? std::vector<int>() : codes.nibbles();
  const std::vector<int> zeros = node.inputs.size() > 2 && codes.type != kCodesS8
                                     ? model.initializers.at(node.inputs[2]).nibbles()
                                     : std::vector<int>();
  const std::vector<float> scales = scale.as<float>();
  at::Tensor values = torch::empty({rows, columns});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(r * columns + c);
      int code = nibbles.empty() ? static_cast<int8_t>(codes.raw.at(at)) : nibbles.at(at);
      if (codes.type == kCodesS4 && code > 7) code -= 16;
      size_t place = static_cast<size_t>(axis == 0 ? r : c);
      if (block > 0) {
        place = static_cast<size_t>(axis == 0 ? r / block * columns + c : r * scale.dims.at(1) + c / block);
      }
      const int zero = zeros.empty() ? 0 : zeros.at(place);
      values[r][c] = static_cast<float>(code - zero) * scales.at(place);
    }
  }
  return values;
}

ReadNode dequantizer_of(const ReadModel& model, const std::string& op, size_t input) {
  const ReadNode* made = model.maker(model.of(op).at(0).inputs.at(input));
  return made == nullptr ? ReadNode() : *made;
}

}  // namespace

TEST(ExportWeights, FourBitsAreBlocksAlongTheInputs) {
  for (const bool affine : {false, true}) {
    SCOPED_TRACE(affine);
    const Module module = small_text({.bits = 4, .group = 16, .affine = affine});
    const ReadModel model = read_onnx(export_onnx(*module));
    EXPECT_EQ(model.of("Transpose").size(), 0U);
    const ReadNode layer = dequantizer_of(model, "MatMul", 1);
    ASSERT_EQ(layer.op, "DequantizeLinear");
    const ReadTensor& codes = model.initializers.at(layer.inputs[0]);
    EXPECT_EQ(codes.type, affine ? kCodesU4 : kCodesS4);
    EXPECT_EQ(codes.dims, (std::vector<int64_t>{kWidth, kOut}));
    EXPECT_EQ(codes.raw.size(), static_cast<size_t>(kWidth * kOut / 2));
    EXPECT_EQ(layer.attributes.at("block_size").i, 16);
    EXPECT_EQ(model.initializers.at(layer.inputs[1]).dims,
              (std::vector<int64_t>{3, kOut}));  // the last one is of 8
    EXPECT_TRUE(torch::equal(dequantized(model, layer), weight_of(module, "fc.weight", kWidth).t()));
    const ReadNode table = dequantizer_of(model, "Gather", 0);
    ASSERT_EQ(table.op, "DequantizeLinear");
    EXPECT_EQ(table.attributes.at("axis").i, 1);
    EXPECT_TRUE(torch::equal(dequantized(model, table), weight_of(module, "table.weight", kWidth)));
  }
}

TEST(ExportWeights, EightBitsOfALayerAreBlocksOfEqualScales) {
  const Module module = small_text({});
  const ReadModel model = read_onnx(export_onnx(*module));
  const ReadNode layer = dequantizer_of(model, "MatMul", 1);
  ASSERT_EQ(layer.op, "DequantizeLinear");
  EXPECT_EQ(model.initializers.at(layer.inputs[0]).type, kCodesS8);
  EXPECT_EQ(layer.attributes.at("block_size").i, kWidth) << "no power of 2 from 16 on divides it";
  for (const char zero : model.initializers.at(layer.inputs.at(2)).raw) EXPECT_EQ(zero, 0);
  EXPECT_TRUE(torch::equal(dequantized(model, layer), weight_of(module, "fc.weight", kWidth).t()));
  // Rows of codes are picked before they are unpacked.
  EXPECT_EQ(model.initializers.at(model.of("Gather").at(0).inputs[0]).type, kCodesS8);
  EXPECT_EQ(model.of("DequantizeLinear").size(), 1U);
}

TEST(ExportWeights, BlocksDivideTheRowsWhereThatCanBe) {
  torch::manual_seed(1);
  const auto exported = [](int64_t width, const quant::WeightOnlyRecipe& recipe, at::Tensor* weight) {
    torch::nn::Sequential net{torch::nn::Linear(width, kOut)};
    net->eval();
    const Module module = quant::quantize_weights(capture(net, {torch::ones({2, 3, width})}), recipe);
    *weight = weight_of(module, "0.weight", width).t();
    return read_onnx(export_onnx(*module));
  };
  struct Case {
    int64_t width, bits, block;
  };
  // Of 8 bits the largest power of 2 up to 128; of 4 bits a part of the group of 32.
  for (const Case& one :
       {Case{400, 8, 16}, Case{256, 8, 128}, Case{96, 8, 32}, Case{48, 4, 16}, Case{64, 4, 32}}) {
    SCOPED_TRACE(one.width);
    at::Tensor weight;
    const ReadModel model = exported(one.width, {.bits = one.bits}, &weight);
    const ReadNode layer = dequantizer_of(model, "MatMul", 1);
    ASSERT_EQ(layer.op, "DequantizeLinear");
    EXPECT_EQ(layer.attributes.at("block_size").i, one.block);
    EXPECT_EQ(model.initializers.at(layer.inputs[1]).dims[0], one.width / one.block);
    EXPECT_TRUE(torch::equal(dequantized(model, layer), weight));
  }
}

TEST(ExportWeights, OlderOpsetsHaveEightBitsAlone) {
  const Module eight = small_text({}), four = small_text({.bits = 4, .embeddings = false});
  const ReadModel model = read_onnx(export_onnx(*eight, {.opset = 17}));
  const ReadNode layer = dequantizer_of(model, "MatMul", 1);
  EXPECT_FALSE(layer.attributes.contains("block_size"));
  EXPECT_EQ(layer.attributes.at("axis").i, 1);
  EXPECT_TRUE(torch::equal(dequantized(model, layer), weight_of(eight, "fc.weight", kWidth).t()));
  EXPECT_ERROR(export_onnx(*four, {.opset = 20}), "expected opset 21 for codes of 4 bits");
}

TEST(ExportWeights, ComeBackWithTheirCodesAndBits) {
  const torch::NoGradGuard no_grad;
  const at::Tensor ids = torch::randint(0, kWords, {4, 3}, torch::kLong);
  const quant::WeightOnlyRecipe recipes[] = {
      {}, {.bits = 4}, {.bits = 4, .group = 16, .affine = true}, {.bits = 4, .group = 6}};
  for (const quant::WeightOnlyRecipe& recipe : recipes) {
    SCOPED_TRACE(recipe.to_json());
    const Module module = small_text(recipe);
    const Module again = exchange::import_onnx(export_onnx(*module), "model.onnx");
    EXPECT_TRUE(torch::equal(again->forward(ids), module->forward(ids)));
    const auto ours = module->named_buffers(), theirs = again->named_buffers();
    for (const char* name : {"fc.weight.int4", "fc.weight.int8", "fc.weight.scale", "fc.weight.zero_point"}) {
      if (!ours.contains(name)) continue;
      ASSERT_TRUE(theirs.contains(name)) << name;
      EXPECT_TRUE(torch::equal(theirs[name].flatten(), ours[name].flatten())) << name;
    }
  }
}

/// Codes of 8 bits with groups, as files of others have them.
TEST(ExportWeights, GroupsOfEightBitsComeBack) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  SmallText model;
  model.eval();
  const at::Tensor ids = torch::randint(0, kWords, {4, 3}, torch::kLong);
  std::map<std::string, quant::StoredQuantizedWeight> codes;
  for (const auto& [name, rows] : {std::pair("table.weight", kWords), {"fc.weight", kOut}})
    codes[name] = {.codes = torch::randint(-128, 128, {rows, 5, 8}, torch::kChar),
                   .scale = torch::rand({rows, 5}),
                   .columns = kWidth};
  const Module module = quant::read_quantized_weights(capture(model, {ids}), codes);
  const std::string bytes = export_onnx(*module);
  const ReadModel read = read_onnx(bytes);
  const ReadNode layer = dequantizer_of(read, "MatMul", 1);
  EXPECT_EQ(layer.attributes.at("block_size").i, 8);
  EXPECT_TRUE(torch::equal(dequantized(read, layer), weight_of(module, "fc.weight", kWidth).t()));
  const Module again = exchange::import_onnx(bytes, "model.onnx");
  EXPECT_TRUE(
      torch::equal(again->named_buffers()["fc.weight.int8"], module->named_buffers()["fc.weight.int8"]));
  EXPECT_TRUE(torch::equal(again->forward(ids), module->forward(ids)));
  EXPECT_ERROR(export_onnx(*module, {.opset = 17}), "expected opset 21 for groups of 8 bits");
}

/// No zero point stands for a minimum: such weights are floats in files of others.
TEST(ExportWeights, MinimaMakeFloats) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  SmallText model;
  model.eval();
  const at::Tensor ids = torch::randint(0, kWords, {4, 3}, torch::kLong);
  std::map<std::string, quant::StoredQuantizedWeight> codes;
  for (const auto& [name, rows] : {std::pair("table.weight", kWords), {"fc.weight", kOut}})
    codes[name] = {.codes = torch::randint(0, 256, {rows, 3, 8}, torch::kByte),
                   .scale = torch::rand({rows, 3}),
                   .columns = kWidth,
                   .minimum = torch::rand({rows, 3})};
  const Module module = quant::read_quantized_weights(capture(model, {ids}), codes);
  for (const int64_t opset : {17, 21}) {
    const std::string bytes = export_onnx(*module, {.opset = opset});
    const ReadModel read = read_onnx(bytes);
    EXPECT_EQ(read.of("DequantizeLinear").size(), 0U);
    ASSERT_TRUE(read.initializers.contains("fc.weight"));
    EXPECT_EQ(read.initializers.size(), 3U) << "two weights and a bias";
    const Module again = exchange::import_onnx(bytes, "model.onnx");
    for (const char* name : {"table.weight", "fc.weight"})
      EXPECT_TRUE(torch::equal(again->named_parameters()[name], quant::dequantize_weight(codes[name])))
          << name;
    EXPECT_TRUE(torch::equal(again->forward(ids), module->forward(ids)));
  }
  const TemporaryFolder folder;
  EXPECT_NO_THROW(exchange::export_tflite(*module, folder / "model.tflite", {}));
  EXPECT_NO_THROW(exchange::export_coreml(*module, folder / "model.mlpackage", {}));
  EXPECT_TRUE(module->named_buffers().contains("fc.weight.minimum")) << "the model stays as it is";
}

TEST(ExportWeights, TrainAsFloatsWhereThatIsAskedFor) {
  const Module module = small_text({.bits = 4});
  const Module trained =
      exchange::import_onnx(export_onnx(*module), "model.onnx", {.qdq = exchange::QdqForm::fake});
  ASSERT_TRUE(trained->named_parameters().contains("fc.weight.int4"));
  EXPECT_TRUE(
      torch::equal(trained->named_parameters()["fc.weight.int4"], weight_of(module, "fc.weight", kWidth)));
  trained->forward(torch::ones({2, 3}, torch::kLong)).square().mean().backward();
  EXPECT_GT(trained->named_parameters()["fc.weight.int4"].grad().abs().sum().item<double>(), 0);
}

}  // namespace ulp::test
