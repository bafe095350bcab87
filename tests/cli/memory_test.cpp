// `ulp memory`, and `ulp train --memory-budget`.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::Workshop;

nlohmann::json memory_json(const Workshop& shop, const std::string& args) {
  const auto outcome = shop.ulp(args + " --threads 1 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

TEST(MemoryTool, ProvesWhatItPredicts) {
  const Workshop shop;
  const auto json = memory_json(shop, "memory resnet8 --shape 1,16,16 --batch 60 --precision bf16 --prove");
  const auto predicted = json.value("peak_bytes", 0.0), measured = json.value("measured_bytes", 0.0);
  EXPECT_GE(predicted, measured);
  EXPECT_LE(predicted, 1.03 * measured);
  EXPECT_GT(json["at_peak"].value("activations", 0), json["at_peak"].value("parameters", 0));
}

TEST(MemoryTool, TellsWhatFitsAndWritesAReport) {
  const Workshop shop;
  const std::string args = "memory gpt2 --lengths 8,16 --batch 2 --budget 24MiB --report out";
  const auto json = memory_json(shop, args);
  ASSERT_EQ(json["fits"].size(), 2u);
  EXPECT_GT(json["fits"][0].value("batch", 0), json["fits"][1].value("batch", 0));
  EXPECT_LE(json["fits"][0].value("peak_bytes", 0), 24 << 20);
  EXPECT_EQ(json.value("longest", 0), 128);
  EXPECT_TRUE(std::filesystem::exists(shop / "out/report.html"));
  const auto text = shop.ulp("memory mlp --shape 1,4,4 --batch 8 --budget 1KiB");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("batch 8 does not fit in 1.00 KiB"), std::string::npos) << text.out;
}

TEST(MemoryTool, RefusesWrongUse) {
  const Workshop shop;
  expect_error(shop.ulp("memory mlp --budget apples"), 2, "--budget: expected bytes as 12GiB");
  expect_error(shop.ulp("memory resnet8 --length 8"), 2, "expected no lengths for resnet8");
  expect_error(shop.ulp("memory bert-base --lengths 64,1000"), 2, "expected lengths from 1 to 512");
  expect_error(shop.ulp("memory mlp --masters split"), 2, "--masters split is for bf16 and fp16 parameters");
  expect_error(shop.ulp("memory no.safetensors"), 3, "no.safetensors");
}

TEST(MemoryTool, AModelFileIsTakenAsItIs) {
  const Workshop shop;
  shop.make_data("data");
  const auto train =
      shop.ulp("train --model lenet5 --data data --batch 16 --max-steps 2 --lr 0.01 --out m.safetensors");
  ASSERT_EQ(train.code, 0) << train.err;
  const auto json = memory_json(shop, "memory m.safetensors --batch 40 --optimizer sgd --prove");
  EXPECT_GE(json.value("peak_bytes", 0), json.value("measured_bytes", 1));
}

TEST(MemoryBudget, TrainingStaysBelowWhatItIsGiven) {
  const Workshop shop;
  shop.make_data("data");
  const std::string train = "train --model resnet8 --data data --batch 64 --max-steps 3 --lr 0.01 ";
  const auto whole = memory_json(shop, train + "--memory-budget 1GiB")["memory"];
  EXPECT_TRUE(whole["changes"].empty());
  EXPECT_LE(whole.value("peak_bytes", 0), whole.value("predicted_bytes", 0));
  const int64_t budget = whole.value("peak_bytes", int64_t{0}) / 2;
  const auto half = memory_json(shop, train + "--memory-budget " + std::to_string(budget))["memory"];
  EXPECT_FALSE(half["changes"].empty());
  EXPECT_LT(half.value("batch", 64), 64);
  EXPECT_EQ(half.value("batch", 0) * half.value("accumulate", 0), 64);
  EXPECT_LE(half.value("peak_bytes", budget + 1), budget);
  const auto none = shop.ulp(train + "--memory-budget 400KiB");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("the smallest peak that was found"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("got 400 KiB"), std::string::npos) << none.err;
  expect_error(shop.ulp(train + "--memory-budget 2GiB --watch"), 2,
               "--watch and --memory-budget exclude each other");
}

TEST(MemoryBudget, ActivationsAreComputedAgainForTheSameWeights) {
  const Workshop shop;
  shop.make_data("data");
  const std::string train = "train --model resnet8 --data data --batch 64 --max-steps 3 --lr 0.01 ";
  const auto whole = memory_json(shop, train + "--memory-budget 1GiB --out whole.safetensors")["memory"];
  const auto budget = static_cast<int64_t>(0.88 * whole.value("peak_bytes", 0.0));
  const auto less =
      memory_json(shop, train + "--out less.safetensors --memory-budget " + std::to_string(budget))["memory"];
  ASSERT_EQ(less["changes"].size(), 1U) << less;
  EXPECT_NE(less["changes"][0].get<std::string>().find("checkpointing"), std::string::npos) << less;
  EXPECT_LE(less.value("peak_bytes", budget + 1), budget);
  EXPECT_EQ(ulp::test::read_file(shop / "less.safetensors"),
            ulp::test::read_file(shop / "whole.safetensors"));
}

}  // namespace
