// ONNX's own tests of its operators (tests/golden/node_tests.json): the graph's numbers, and those of engines
// with LibTorch for what they have not. bench/peers/conformance.py runs all of them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "error_of.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {

namespace {

std::string from_base64(const std::string& text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t kept = 0;
  int bits = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) break;  // the end
    kept = kept << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(kept >> bits & 255));
  }
  return bytes;
}

at::Tensor tensor_from(const nlohmann::json& said) {
  static const std::map<std::string, at::ScalarType> types = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf},
      {"int64", at::kLong},    {"int32", at::kInt},      {"int16", at::kShort},
      {"int8", at::kChar},     {"uint8", at::kByte},     {"bool", at::kBool}};
  const std::string bytes = from_base64(said.at("data"));
  at::Tensor tensor = torch::empty(said.at("sizes").get<std::vector<int64_t>>(),
                                   types.at(said.at("type").get<std::string>()));
  EXPECT_EQ(bytes.size(), tensor.nbytes());
  if (tensor.numel() > 0)
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), std::min(bytes.size(), tensor.nbytes()));
  return tensor;
}

/// Within the test's tolerance; numbers of 16 bits within two of their steps.
void expect_close(const at::Tensor& ours, const at::Tensor& right, const nlohmann::json& test,
                  const std::string& where) {
  ASSERT_EQ(ours.sizes(), right.sizes()) << where;
  ASSERT_EQ(ours.scalar_type(), right.scalar_type()) << where;
  const double half = right.scalar_type() == at::kHalf ? 0x1p-9 : 0;
  const double rtol = std::max(test.at("rtol").get<double>(), half);
  EXPECT_TRUE(torch::allclose(ours.to(at::kDouble), right.to(at::kDouble), rtol, test.at("atol"),
                              /*equal_nan=*/true))
      << where << ":\n"
      << ours << "\nexpected\n"
      << right;
}

/// Tests with integers beyond 2^24, at which runs in pieces stop by name.
const std::set<std::string> kStopped = {"test_bitwise_not_2d"};

}  // namespace

TEST(NodeTests, AreRightInGraphsAndEngines) {
  const auto tests = nlohmann::json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/node_tests.json"));
  const torch::NoGradGuard no_grad;
  EXPECT_GE(tests.size(), 200);
  std::set<std::string> stopped;
  for (const nlohmann::json& test : tests) {
    const std::string name = test.at("name");
    const auto module =
        exchange::import_onnx(from_base64(test.at("model")), name + ".onnx", {.free_batch = true});
    std::vector<at::Tensor> inputs;
    for (const nlohmann::json& input : test.at("inputs")) inputs.push_back(tensor_from(input));
    const auto graph = module->forward_all(inputs);
    std::vector<at::Tensor> pieces;
    try {
      pieces = lower_partitioned(*module).run(inputs);
    } catch (const Error& error) {  // an engine's integers are those of f32
      EXPECT_SAYS(error.what(), "which f32 holds") << name;
      stopped.insert(name);
    }
    for (size_t i = 0; i < test.at("outputs").size(); ++i) {
      const at::Tensor right = tensor_from(test.at("outputs")[i]);
      expect_close(graph.at(i), right, test, name + ", graph");
      if (!pieces.empty()) expect_close(pieces.at(i), right, test, name + ", pieces");
    }
  }
  EXPECT_EQ(stopped, kStopped);
}

}  // namespace ulp::test
