// ulp roofline, ulp devices --measure, ulp bench --trace.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::write_file;

class RooflineTool : public WithLeNet5 {
 protected:
  static void SetUpTestSuite() {
    WithLeNet5::SetUpTestSuite();
    ASSERT_EQ(shop_->ulp("lower m.safetensors --out m.ulp").code, 0);
  }
};

TEST_F(RooflineTool, ShowsLayersAndWritesAReport) {
  const Outcome outcome = shop_->ulp("roofline m.ulp --batch 2 --quick --runs 1 --report out");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* says : {"Layers", "conv", "intensity", "Arithmetic", "triad"})
    EXPECT_NE(outcome.out.find(says), std::string::npos) << says;
  EXPECT_NE(read_file(*shop_ / "out/report.html").find("Roofline: m.ulp"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(read_file(*shop_ / "out/report.json"))["charts"].size(), 1u);
}

TEST_F(RooflineTool, TakesModelsToTrainAndReferenceNetworks) {
  for (const char* args : {"m.safetensors --train --precision bf16", "lenet5 --precision int8 --threads 1"}) {
    const Outcome outcome = shop_->ulp("roofline " + std::string(args) + " --quick --runs 1 --json");
    ASSERT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    const auto page = nlohmann::json::parse(outcome.out);
    EXPECT_GT(page["tables"].size(), 3u) << args;
  }
}

TEST_F(RooflineTool, WrongUseIsSaid) {
  expect_error(shop_->ulp("roofline"), 2, "model");
  expect_error(shop_->ulp("roofline none.ulp"), 3, "none.ulp");
  expect_error(shop_->ulp("roofline m.ulp --train"), 2, "a model to train");
  expect_error(shop_->ulp("roofline m.ulp --precision bf16"), 2, "has its own");
  expect_error(shop_->ulp("roofline m.safetensors --precision fp7"), 2, "int8");
  expect_error(shop_->ulp("roofline m.safetensors --batch 0"), 2, "--batch");
  expect_error(shop_->ulp("roofline m.safetensors --train --precision int8"), 2, "fp32 or bf16");
  write_file(*shop_ / "bad.ulp", "no engine");
  expect_error(shop_->ulp("roofline bad.ulp"), 3, "bad.ulp");
}

TEST_F(RooflineTool, DevicesMeasurePeaks) {
  const Outcome outcome = shop_->ulp("devices --quick --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_GE(json["Arithmetic"].size(), 3u);
  EXPECT_GE(json["Bandwidth"].size(), 2u);
  EXPECT_TRUE(json["Memory"].is_string()) << "how much there is";
  EXPECT_FALSE(nlohmann::json::parse(shop_->ulp("devices --json").out).contains("Bandwidth"));
}

TEST_F(RooflineTool, BenchWritesATrace) {
  const Outcome outcome = shop_->ulp("bench m.ulp --batch 2 --rounds 1 --trace steps.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto trace = nlohmann::json::parse(read_file(*shop_ / "steps.json"));
  EXPECT_GT(trace["traceEvents"].size(), 6u);
  EXPECT_NE(outcome.out.find("Shares are of the machine's measured peak"), std::string::npos);
  expect_error(shop_->ulp("bench m.safetensors --trace steps.json"), 1, "an engine to trace");
  expect_error(shop_->ulp("bench m.ulp --trace none/steps.json"), 1, "none");
}

}  // namespace
