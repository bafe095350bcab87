// ulp check as a user meets it, and files of save_graph() in every command that takes a model.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::write_file;

/// The file without the tool's description: what save_graph() writes.
std::string without_description(const std::string& file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  json header = json::parse(file.substr(sizeof size, size));
  EXPECT_EQ(header["__metadata__"].erase("ulp.model"), 1U);
  EXPECT_TRUE(header["__metadata__"].contains("ulp.graph"));
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t written = text.size();
  std::string made(reinterpret_cast<const char*>(&written), sizeof written);
  return made + text + file.substr(sizeof size + size);
}

class Check : public ulp::test::WithLeNet5 {
 protected:
  static void SetUpTestSuite() {
    WithLeNet5::SetUpTestSuite();
    const Outcome cut = shop_->ulp(
        "prune m.safetensors --data data --method channels --keep macs=0.6 --samples 32 --test 0 "
        "--no-latency --out "
        "cut.safetensors");
    ASSERT_EQ(cut.code, 0) << cut.err;
    write_file(*shop_ / "graph.safetensors", without_description(read_file(*shop_ / "cut.safetensors")));
  }
  static json step_of(const json& report, const std::string& goal) {
    for (const json& step : report["steps"]) {
      if (step["goal"] == goal) return step;
    }
    ADD_FAILURE() << "no step " << goal;
    return {};
  }
};

TEST_F(Check, PrintsThePageOfTheRoad) {
  const Outcome page = shop_->ulp("check m.safetensors --json page.json");
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("works  train:bf16 "), std::string::npos) << page.out;
  EXPECT_NE(page.out.find("works  onnx_qdq "), std::string::npos) << page.out;
  const json report = json::parse(read_file(*shop_ / "page.json"));
  for (const char* goal :
       {"run", "train:fp32", "engine", "int8", "qat", "prune", "onnx", "tflite_int8", "coreml", "pt2"})
    EXPECT_EQ(step_of(report, goal)["works"], true) << step_of(report, goal);
  EXPECT_GT(report["model"]["parameters"], 1000);
}

TEST_F(Check, NamedGoalsDecideTheExitCode) {
  const Outcome reached = shop_->ulp("check m.safetensors --for onnx,int8 --json");
  ASSERT_EQ(reached.code, 0) << reached.err;
  EXPECT_EQ(json::parse(reached.out)["steps"].size(), 2U);
  // A quantized model is quantized no further, and trains no more.
  ASSERT_EQ(shop_->ulp("quantize m.safetensors --data data --samples 32 --test 0 --out q.onnx").code, 0);
  const Outcome missed = shop_->ulp("check q.onnx --for engine,int8,qat --json page.json");
  EXPECT_EQ(missed.code, 1);
  EXPECT_NE(missed.err.find("2 of 3 goals out of reach: int8, qat"), std::string::npos) << missed.err;
  EXPECT_NE(missed.out.find("stops  int8 "), std::string::npos) << missed.out;
  EXPECT_EQ(step_of(json::parse(read_file(*shop_ / "page.json")), "engine")["works"], true);
  const Outcome all = shop_->ulp("check q.onnx --json");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(step_of(json::parse(all.out), "qat")["works"], false);
}

TEST_F(Check, TakesNetworksByName) {
  EXPECT_EQ(shop_->ulp("check resnet8 --shape 3,32,32 --for engine,train:fp32").code, 0);
  EXPECT_EQ(shop_->ulp("check --json m.safetensors --for pt2").out.substr(0, 1), "{");
}

TEST_F(Check, BadInputIsOneLine) {
  expect_error(shop_->ulp("check m.safetensors --for onxx"), 2, "got 'onxx'; the nearest are onnx");
  expect_error(shop_->ulp("check"), 2, "model");
  expect_error(shop_->ulp("check --json"), 2, "model");
  expect_error(shop_->ulp("check m.safetensors --json m.safetensors"), 2, "is what would be read");
  expect_error(shop_->ulp("check m.safetensors --json missing/page.json"), 1, "does not exist");
  expect_error(shop_->ulp("check none.safetensors"), 3, "none.safetensors");
  write_file(*shop_ / "broken.onnx", "no model");
  expect_error(shop_->ulp("check broken.onnx --json page2.json"), 3, "broken.onnx");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "page2.json"));
}

TEST_F(Check, FilesOfSaveGraphAreModelsOfEveryCommand) {
  const auto expect_done = [&](const std::string& command) {
    const Outcome outcome = shop_->ulp(command);
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome.out;
  };
  expect_done("lower graph.safetensors --out g.ulp");
  expect_done("lower cut.safetensors --out c.ulp");
  // The same network: the engines differ in the description alone.
  const std::string mine = expect_done("run g.ulp --random --json"),
                    its = expect_done("run c.ulp --random --json");
  EXPECT_EQ(mine, its);
  EXPECT_EQ(expect_done("run graph.safetensors --random --json"), its);
  expect_done("run graph.safetensors --data data --count 2 --normalize 0.286,0.353");
  expect_done("eval graph.safetensors --data data");
  expect_done("export graph.safetensors --out g.onnx");
  expect_done("export graph.safetensors --to pt2 --out g.pt2");
  expect_done("quantize graph.safetensors --data data --samples 32 --test 0 --out gq.ulp");
  expect_done("quantize graph.safetensors --data data --mode dynamic --test 0 --out gd.ulp");
  expect_done(
      "prune graph.safetensors --data data --sparsity 0.5 --test 0 --no-latency --out gp.safetensors");
  expect_done("train --init graph.safetensors --data data --max-steps 2 --batch 16 --out gt.safetensors");
  expect_done(
      "distill m.safetensors --student graph.safetensors --data data --no-latency --max-steps 2 --batch 16 "
      "--out "
      "gs.safetensors");
  expect_done("bench graph.safetensors --rounds 1 --batch 1 --json");
  expect_done("roofline graph.safetensors --quick --runs 1 --json");
  expect_done("memory graph.safetensors --batch 4 --json");
  expect_done("check graph.safetensors --for engine,onnx");
  EXPECT_NE(expect_done("inspect graph.safetensors").find("captured model"), std::string::npos);
  EXPECT_NE(expect_done("inspect graph.safetensors --graph").find("aten::conv2d"), std::string::npos);
  expect_error(shop_->ulp("lower graph.safetensors --size time=4 --out x.ulp"), 1, "expected --size beside");
}

TEST_F(Check, ADamagedGraphIsSaidToBeOne) {
  std::string file = read_file(*shop_ / "graph.safetensors");
  const size_t at = file.find("aten::conv2d");
  ASSERT_NE(at, std::string::npos);
  file.replace(at, 12, "aten::nothin");
  write_file(*shop_ / "damaged.safetensors", file);
  expect_error(shop_->ulp("lower damaged.safetensors --out x.ulp"), 3, "aten::nothin");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.ulp"));
}

}  // namespace
