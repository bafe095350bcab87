// What TensorFlow Lite files and Core ML packages hold, as `ulp inspect` says it; damaged ones are refused.
#include "ulp/exchange/listed_file.h"

#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include "captured_function.h"
#include "error_of.h"
#include "file_bytes.h"
#include "temporary_folder.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_tflite.h"

namespace ulp::test {

namespace {

using TensorSizes = std::vector<int64_t>;

std::shared_ptr<graph::GraphModule> listed_net() {
  auto net = std::make_shared<FunctionNet>();
  auto first = net->register_module("first", torch::nn::Linear(6, 4));
  net->body = [=](const at::Tensor& x) mutable { return torch::softmax(first->forward(x), 1); };
  return captured_net(net, torch::randn({2, 6}));
}

std::vector<std::string> ops_of(const exchange::ListedFile& file) {
  std::vector<std::string> ops;
  for (const exchange::ListedOperator& one : file.operators) ops.push_back(one.op);
  return ops;
}

std::vector<exchange::ListedTensor> used_as(const exchange::ListedFile& file, const std::string& use) {
  std::vector<exchange::ListedTensor> found;
  std::ranges::copy_if(file.tensors, std::back_inserter(found),
                       [&](const exchange::ListedTensor& one) { return one.use == use; });
  return found;
}

/// Each byte in turn is another one, and each beginning is a whole file: an error, or a list.
template <typename List>
void expect_no_crash(const std::filesystem::path& path, const List& list) {
  const std::string bytes = file_bytes(path);
  const auto tried = [&](const std::string& changed) {
    std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
    try {
      list();
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); i += std::max<size_t>(bytes.size() / 300, 1)) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x5A);
    refused += tried(changed) ? 0 : 1;
    refused += tried(bytes.substr(0, i)) ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
  EXPECT_TRUE(tried(bytes));
}

}  // namespace

TEST(ListedFile, TensorFlowLiteFilesAreListed) {
  const TemporaryFolder folder;
  exchange::export_tflite(*listed_net(), folder / "m.tflite", {.batch = 0});
  const exchange::ListedFile file = exchange::list_tflite(folder / "m.tflite");
  EXPECT_EQ(ops_of(file), (std::vector<std::string>{"FULLY_CONNECTED", "SOFTMAX"}));
  ASSERT_EQ(used_as(file, "input").size(), 1U);
  EXPECT_EQ(used_as(file, "input")[0].shape, (TensorSizes{-1, 6}));
  EXPECT_EQ(used_as(file, "input")[0].type, "FLOAT32");
  EXPECT_EQ(used_as(file, "output").at(0).shape, (TensorSizes{-1, 4}));
  EXPECT_EQ(file.operators[0].inputs.at(0), used_as(file, "input")[0].name);
  uint64_t bytes = 0;
  for (const auto& stored : used_as(file, "stored")) bytes += stored.bytes;
  EXPECT_EQ(bytes, (6 * 4 + 4) * sizeof(float));
  expect_no_crash(folder / "m.tflite", [&] { exchange::list_tflite(folder / "m.tflite"); });
  EXPECT_ERROR(exchange::list_tflite(folder / "none"), "[exchange.list_tflite]");
}

TEST(ListedFile, CoreMlPackagesAreListed) {
  const TemporaryFolder folder;
  const auto package = folder / "m.mlpackage";
  exchange::export_coreml(*listed_net(), package, {.batch = 3});
  const exchange::ListedFile file = exchange::list_coreml(package);
  EXPECT_EQ(ops_of(file), (std::vector<std::string>{"linear", "softmax"}));
  EXPECT_EQ(used_as(file, "input").at(0).shape, (TensorSizes{3, 6}));
  EXPECT_EQ(used_as(file, "output").at(0).shape, (TensorSizes{3, 4}));
  EXPECT_EQ(used_as(file, "output")[0].type, "float32");
  const auto stored = used_as(file, "stored");
  const auto weight = std::ranges::find(stored, TensorSizes{4, 6}, &exchange::ListedTensor::shape);
  ASSERT_NE(weight, stored.end());
  EXPECT_EQ(weight->bytes, 4 * 6 * sizeof(float));
  std::filesystem::path model;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(package)) {
    if (entry.path().extension() == ".mlmodel") model = entry.path();
  }
  expect_no_crash(model, [&] { exchange::list_coreml(package); });
  std::ofstream(package / "Manifest.json")
      << R"({"rootModelIdentifier": "a", "itemInfoEntries": {"a": {"path": "../x"}}})";
  EXPECT_ERROR(exchange::list_coreml(package), "expected a manifest with a model inside the package");
}

}  // namespace ulp::test
