// The samples of docs/exchange.md: a small network leaves in float and in int8, and comes back.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "exchange/coreml.includes.h"
#include "exchange/export.includes.h"
#include "exchange/export_pt2.includes.h"
#include "exchange/fp16.includes.h"
#include "exchange/gguf.includes.h"
#include "exchange/import.includes.h"
#include "exchange/import_pt2.includes.h"
#include "exchange/int8.includes.h"
#include "exchange/small.includes.h"
#include "exchange/tflite.includes.h"
#include "in_temporary_folder.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lenet5.h"
#include "ulp/ulp.h"

namespace {

TEST(ExchangePage, ANetworkLeavesInFloatAndInInt8AndComesBack) {
  const ulp::docs::InTemporaryFolder here;
  const auto network = ulp::models::make_lenet5({});
  network->eval();
  auto& model = *network;
  const torch::NoGradGuard no_grad;
  const auto images = torch::randn({4, 1, 28, 28});
#include "exchange/export.inc"
#include "exchange/export_pt2.inc"
#include "exchange/fp16.inc"
#include "exchange/int8.inc"
#include "exchange/small.inc"
#include "exchange/tflite.inc"
  const auto size = [](const char* file) { return std::filesystem::file_size(file); };
  EXPECT_GT(size("model.onnx"), 3 * size("model.int8.onnx"));
  EXPECT_GT(2.1 * size("model.fp16.onnx"), size("model.onnx"));
  EXPECT_LT(1.9 * size("model.fp16.onnx"), size("model.onnx"));
  EXPECT_GT(size("model.onnx"), size("model.dynamic.onnx"));
  EXPECT_GT(size("model.pt2"), size("model.onnx"));
  EXPECT_GT(size("model.tflite"), 3 * size("model.int8.tflite"));
  EXPECT_GT(size("model.dynamic.onnx"), size("model.int4.onnx"));
#include "exchange/coreml.inc"
  const auto weights = [&](const std::string& package) {
    return std::filesystem::file_size(package + "/Data/com.apple.CoreML/weights/weight.bin");
  };
  EXPECT_GT(weights("model.mlpackage"), 3 * weights("small.mlpackage"));
  EXPECT_GT(weights("model.mlpackage"), 1.9 * weights("half.mlpackage"));
  const torch::AutoGradMode grad(true);
#include "exchange/import.inc"
  EXPECT_TRUE(imported->named_parameters()["conv1.weight"].grad().defined());
}

TEST(ExchangePage, AnArchiveOfTorchExportComesInAndTrains) {
  const ulp::docs::InTemporaryFolder here;
  std::filesystem::copy_file(std::string(ULP_SOURCE_DIR) + "/tests/golden/pt2/texts.pt2", "model.pt2");
  const auto images = torch::ones({2, 5}, torch::kLong);  // this one reads words
#include "exchange/import_pt2.inc"
  EXPECT_TRUE(exported->named_parameters()["qkv.weight"].grad().defined());
}

TEST(ExchangePage, Gpt2LeavesAsGgufAndComesBack) {
  const ulp::docs::InTemporaryFolder here;
  const auto gpt2 =
      ulp::models::make_gpt2({.vocab_size = 20, .max_length = 8, .width = 32, .layers = 1, .heads = 2});
  const at::Tensor before = gpt2->named_parameters()["wte.weight"].detach().clone();
#include "exchange/gguf.inc"
  EXPECT_EQ(file.find("token_embd.weight")->type, "Q4_0");
  const at::Tensor after = gpt2->named_parameters()["wte.weight"].detach();
  EXPECT_FALSE(torch::equal(before, after));
  // A step of Q4_0 is an eighth of the largest of its block, and the largest of the other sign is one step short.
  EXPECT_TRUE(torch::allclose(before, after, 0, before.abs().max().item<double>() / 7));
}

}  // namespace
