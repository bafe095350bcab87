// Networks with several inputs and results in ulp quantize and ulp prune: arrays named by inputs are their data.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "npy_file.h"
#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::bytes_of;
using ulp::test::expect_error;
using ulp::test::npy;
using ulp::test::npz;
using ulp::test::Outcome;
using ulp::test::Workshop;
using ulp::test::write_file;

// --- protocol buffers -------------------------------------------------------------------------------------

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string number_field(uint64_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}
std::string bytes_field(uint64_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

std::string onnx_node(const std::string& op, const std::vector<std::string>& inputs,
                      const std::string& output) {
  std::string node;
  for (const std::string& input : inputs) node += bytes_field(1, input);
  return bytes_field(1, node + bytes_field(2, output) + bytes_field(4, op));
}

/// Random weights [rows, columns].
std::string onnx_weight(const std::string& name, int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& value : values) value = normal(random);
  return bytes_field(5, number_field(1, static_cast<uint64_t>(rows)) +
                            number_field(1, static_cast<uint64_t>(columns)) + number_field(2, 1) +
                            bytes_field(8, name) + bytes_field(9, bytes_of(values)));
}

/// float32 [batch, columns].
std::string onnx_value(uint64_t field, const std::string& name, int columns) {
  const std::string batch = bytes_field(1, bytes_field(2, "batch")),
                    size = bytes_field(1, number_field(1, static_cast<uint64_t>(columns)));
  const std::string type = bytes_field(1, number_field(1, 1) + bytes_field(2, batch + size));
  return bytes_field(field, bytes_field(1, name) + bytes_field(2, type));
}

/// h = relu(left W1 + right W2); score = h W3; box = h W4.
std::string two_inputs() {
  const std::string graph =
      onnx_node("MatMul", {"left", "W1"}, "a") + onnx_node("MatMul", {"right", "W2"}, "b") +
      onnx_node("Add", {"a", "b"}, "c") + onnx_node("Relu", {"c"}, "h") +
      onnx_node("MatMul", {"h", "W3"}, "score") + onnx_node("MatMul", {"h", "W4"}, "box") +
      bytes_field(2, "two") + onnx_weight("W1", 6, 32, 1) + onnx_weight("W2", 4, 32, 2) +
      onnx_weight("W3", 32, 3, 3) + onnx_weight("W4", 32, 2, 4) + onnx_value(11, "left", 6) +
      onnx_value(11, "right", 4) + onnx_value(12, "score", 3) + onnx_value(12, "box", 2);
  return number_field(1, 8) + bytes_field(7, graph) +
         bytes_field(8, bytes_field(1, "") + number_field(2, 17));
}

std::string random_array(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& value : values) value = normal(random);
  return npy("<f4", std::to_string(rows) + ", " + std::to_string(columns), bytes_of(values));
}

class SeveralInputs : public testing::Test {
 protected:
  SeveralInputs() {
    write_file(shop_ / "two.onnx", two_inputs());
    write_file(shop_ / "two.npz", npz({{"left", random_array(70, 6, 5)}, {"right", random_array(70, 4, 6)}}));
  }
  Outcome done(const std::string& command) const {
    const Outcome outcome = shop_.ulp(command);
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome;
  }
  Workshop shop_;
};

TEST_F(SeveralInputs, AreQuantizedByTheirOwnData) {
  const json made = json::parse(done("quantize two.onnx --data two.npz --compare --out q.ulp --json").out);
  EXPECT_GT(made["comparison"].size(), 1U);
  EXPECT_LT(made["weight_bytes"], made["float_weight_bytes"]);
  const json results = json::parse(done("run q.ulp --random --count 3 --json").out);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[1]["shape"], (std::vector<int64_t>{3, 2}));
  done("quantize two.onnx --data two.npz --mode dynamic --out d.ulp");
  done("quantize two.onnx --data two.npz --mode weight-only --out w.onnx");
  done("quantize two.onnx --data two.npz --backend onnx_qdq --out q.onnx");
}

TEST_F(SeveralInputs, ArePrunedWithAndWithoutData) {
  const std::string common =
      "prune two.onnx --no-latency --method channels --keep parameters=0.5 --out p.safetensors ";
  const json by_weights = json::parse(done(common + "--criterion l1 --test 0 --json").out);
  EXPECT_LE(by_weights["states"][1]["parameters"].get<double>(),
            0.5 * by_weights["states"][0]["parameters"].get<double>());
  const json by_data = json::parse(done(common + "--criterion activation --data two.npz --json").out);
  EXPECT_EQ(by_data["states"].size(), 2U);
  EXPECT_EQ(json::parse(done("run p.safetensors --random --json").out).size(), 2U);
  done("lower p.safetensors --out p.ulp");
  done("prune two.onnx --no-latency --score wanda --sparsity 0.5 --data two.npz --out s.safetensors");
}

TEST_F(SeveralInputs, AreRefusedByNameWhereTheirDataIsNotEnough) {
  write_file(shop_ / "one.npz", npz({{"left", random_array(70, 6, 5)}}));
  expect_error(shop_.ulp("quantize two.onnx --data one.npz --out x.ulp"), 3,
               "expected an array 'right' for that input in 'one.npz', got left");
  write_file(shop_ / "rows.npz", npz({{"left", random_array(70, 6, 5)}, {"right", random_array(69, 4, 6)}}));
  expect_error(shop_.ulp("quantize two.onnx --data rows.npz --out x.ulp"), 3,
               "expected as many samples of 'right' as of the first input, which has 70");
  write_file(shop_ / "sizes.npz", npz({{"left", random_array(70, 5, 5)}, {"right", random_array(70, 4, 6)}}));
  expect_error(shop_.ulp("quantize two.onnx --data sizes.npz --out x.ulp"), 3, "'sizes.npz'");
  std::vector<int64_t> ids(70 * 6);
  write_file(shop_ / "types.npz",
             npz({{"left", npy("<i8", "70, 6", bytes_of(ids))}, {"right", random_array(70, 4, 6)}}));
  expect_error(shop_.ulp("quantize two.onnx --data types.npz --out x.ulp"), 3,
               "expected 'left' of a type that Float");
  expect_error(shop_.ulp("quantize two.onnx --data two.npz --mode qat --out x.ulp"), 2, "have no labels");
  expect_error(shop_.ulp("prune two.onnx --data two.npz --finetune --sparsity 0.5 --out x.safetensors"), 2,
               "have no labels");
  expect_error(shop_.ulp("prune two.onnx --sparsity 0.5 --out x.safetensors"), 3, "--data FILE.npz");
  expect_error(shop_.ulp("prune two.onnx --no-latency --score taylor --data two.npz --sparsity 0.5 "
                         "--out x.safetensors"),
               1, "expected data to compute the scores with, got none");
  for (const char* file : {"x.ulp", "x.safetensors"})
    EXPECT_FALSE(std::filesystem::exists(shop_ / file)) << file;
}

TEST_F(SeveralInputs, AreChecked) {
  const json page = json::parse(done("check two.onnx --json").out);
  EXPECT_EQ(page["model"]["inputs"].size(), 2U);
  for (const json& step : page["steps"]) {
    if (step["goal"] == "engine" || step["goal"] == "int8" || step["goal"] == "onnx")
      EXPECT_EQ(step["works"], true) << step;
  }
}

}  // namespace
