// The samples of docs/exchange.md: a small network leaves in float and in int8, and comes back.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "exchange/export.includes.h"
#include "exchange/import.includes.h"
#include "exchange/int8.includes.h"
#include "in_temporary_folder.h"
#include "ulp/models/lenet5.h"

namespace {

TEST(ExchangePage, ANetworkLeavesInFloatAndInInt8AndComesBack) {
  const ulp::docs::InTemporaryFolder here;
  const auto network = ulp::models::make_lenet5({});
  network->eval();
  auto& model = *network;
  const torch::NoGradGuard no_grad;
  const auto images = torch::randn({4, 1, 28, 28});
#include "exchange/export.inc"
#include "exchange/int8.inc"
  const auto size = [](const char* file) { return std::filesystem::file_size(file); };
  EXPECT_GT(size("model.onnx"), 3 * size("model.int8.onnx"));
  const torch::AutoGradMode grad(true);
#include "exchange/import.inc"
  EXPECT_TRUE(imported->named_parameters()["conv1.weight"].grad().defined());
}

}  // namespace
