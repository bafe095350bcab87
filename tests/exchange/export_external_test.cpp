// Models in two files: where the tensors lie, and that they come back.
#include <torch/torch.h>

#include <fstream>

#include "error_of.h"
#include "onnx_reader.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;
using exchange::import_onnx;
using Module = std::shared_ptr<graph::GraphModule>;

std::string external_content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Module external_lenet() {
  torch::manual_seed(1);
  const auto model = models::make_model("lenet5", {.in_channels = 1, .image_size = 28});
  model->eval();
  Module module = capture(*model, {torch::zeros({2, 1, 28, 28})});
  module->eval();
  return module;
}

}  // namespace

TEST(ExportExternal, LargeTensorsBeginAtPagesOfTheSecondFile) {
  const TemporaryFolder folder;
  const Module module = external_lenet();
  export_onnx(*module, folder / "m.onnx", {.external_data = true});
  const ReadModel model = read_onnx(external_content(folder / "m.onnx"));
  const std::string data = external_content(folder / "m.onnx.data");
  const ReadModel whole = read_onnx(export_onnx(*module));
  size_t outside = 0;
  for (const auto& [name, tensor] : model.initializers) {
    const std::string& expected = whole.initializers.at(name).raw;
    EXPECT_EQ(tensor.dims, whole.initializers.at(name).dims) << name;
    EXPECT_EQ(tensor.external, expected.size() >= 1024) << name;
    if (!tensor.external) {
      EXPECT_EQ(tensor.raw, expected) << name;
      continue;
    }
    ++outside;
    const size_t offset = std::stoul(tensor.place.at("offset"));
    EXPECT_EQ(tensor.place.at("location"), "m.onnx.data");
    EXPECT_EQ(std::stoul(tensor.place.at("length")), expected.size()) << name;
    EXPECT_EQ(offset % 4096, 0U) << name;
    EXPECT_TRUE(tensor.raw.empty()) << name;
    EXPECT_EQ(data.substr(offset, expected.size()), expected) << name;
  }
  EXPECT_GT(outside, 3U);
  EXPECT_LT(external_content(folder / "m.onnx").size(), 20'000U);
}

TEST(ExportExternal, ComesBackWithTheSameBits) {
  const torch::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const Module module = external_lenet();
  export_onnx(*module, folder / "m.onnx", {.external_data = true});
  const at::Tensor images = torch::randn({3, 1, 28, 28});
  EXPECT_TRUE(torch::equal(import_onnx(folder / "m.onnx")->forward(images), module->forward(images)));
  std::filesystem::resize_file(folder / "m.onnx.data", 5000);
  EXPECT_ERROR(import_onnx(folder / "m.onnx"), "m.onnx.data");
}

TEST(ExportExternal, CodesOfFourBitsComeBackFromTheSecondFile) {
  const torch::NoGradGuard no_grad;
  const TemporaryFolder folder;
  const Module module = quant::quantize_weights(external_lenet(), {.bits = 4});
  export_onnx(*module, folder / "m.onnx", {.external_data = true});
  const at::Tensor images = torch::randn({3, 1, 28, 28});
  EXPECT_TRUE(torch::equal(import_onnx(folder / "m.onnx")->forward(images), module->forward(images)));
}

TEST(ExportExternal, BytesAreOneFile) {
  EXPECT_ERROR(export_onnx(*external_lenet(), {.external_data = true}), "expected a path to write to");
}

TEST(ExportExternal, NothingIsLeftWhereTheModelCannotBeWritten) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m.onnx");  // a folder in the place of the file
  EXPECT_ERROR(export_onnx(*external_lenet(), folder / "m.onnx", {.external_data = true}), "m.onnx");
  EXPECT_FALSE(std::filesystem::exists(folder / "m.onnx.data"));
}

}  // namespace ulp::test
