// Flags of `ulp train` and `ulp memory` for activations and the optimizer's state.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"

namespace {

using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;
namespace fs = std::filesystem;

nlohmann::json planned_json(const Workshop& shop, const std::string& args) {
  const auto outcome = shop.ulp(args + " --threads 1 --json");
  EXPECT_EQ(outcome.code, 0) << args << '\n' << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

/// The model file of a run.
std::string weights_of(const Workshop& shop, const std::string& args) {
  fs::remove(shop / "out.safetensors");
  planned_json(shop, args + " --out out.safetensors");
  return read_file(shop / "out.safetensors");
}

TEST(MemoryPlanFlags, ExactPlansTrainTheSameFile) {
  const Workshop shop;
  shop.make_data("data");
  fs::create_directory(shop / "spill");
  for (const std::string run :
       {"train --model resnet8 --data data --batch 16 --accumulate 2 --max-steps 4 --lr 0.02",
        "train --model resnet8 --data data --batch 16 --max-steps 4 --lr 0.02 --precision fp8:delayed"}) {
    const std::string whole = weights_of(shop, run);
    for (const char* flags :
         {"--checkpoint-activations sqrt", "--checkpoint-activations every:4 --activation-masks",
          "--checkpoint-activations bytes:6MiB", "--offload-activations file --offload-folder spill"})
      EXPECT_TRUE(weights_of(shop, run + ' ' + flags) == whole) << run << ' ' << flags;
    // Both take the same optimizer. Without --clip it is LibTorch's, whose bits differ where AVX2 is missing.
    EXPECT_TRUE(weights_of(shop, run + " --offload-optimizer file --offload-folder spill") ==
                weights_of(shop, run + " --clip 1000000"))
        << run;
  }
  EXPECT_TRUE(fs::is_empty(shop / "spill"));
}

TEST(MemoryPlanFlags, TextsArePlannedToo) {
  const Workshop shop;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i % 977) + ' ';
  write_file(shop / "book.txt", text);
  const std::string run = "train --data book.txt --model gpt2 --length 32 --batch 4 --max-steps 3";
  EXPECT_TRUE(weights_of(shop, run) == weights_of(shop, run + " --checkpoint-activations every:6"));
  EXPECT_FALSE(weights_of(shop, run) == weights_of(shop, run + " --activations int8"));
}

TEST(MemoryPlanFlags, PrunedNetworksArePlannedToo) {
  const Workshop shop;
  shop.make_data("data");
  write_file(shop / "prune.json", R"({"type": "ulp.prune.Recipe", "version": 1})");
  const std::string run =
      "train --model resnet8 --data data --batch 16 --max-steps 6 --lr 0.02 --prune prune.json";
  EXPECT_TRUE(weights_of(shop, run) == weights_of(shop, run + " --checkpoint-activations sqrt"));
}

TEST(MemoryPlanFlags, KilledRunsContinueBitForBitAndLeaveNoFiles) {
  const Workshop shop;
  shop.make_data("data");
  const std::string run =
      "train --model lenet5 --data data --batch 16 --max-steps 600 --lr 0.01 --optimizer adamw "
      "--activations int8 --checkpoint-activations every:3 --offload-activations file --offload-optimizer "
      "file "
      "--offload-folder spill ";
  fs::create_directory(shop / "spill");
  const std::string whole = weights_of(shop, run);
  const std::string args =
      run + "--checkpoint run.ckpt --checkpoint-every 5 --resume --out resumed.safetensors";
  const pid_t process = shop.start(args + " --threads 1");
  for (int i = 0; i < 6000 && !fs::exists(shop / "run.ckpt"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(process, SIGKILL);
  ASSERT_EQ(Workshop::wait(process), 128 + SIGKILL) << "the run ended before it could be killed";
  EXPECT_TRUE(fs::is_empty(shop / "spill"));
  const auto json = planned_json(shop, args);
  EXPECT_GT(json.value("first_step", 0), 0);
  EXPECT_TRUE(read_file(shop / "resumed.safetensors") == whole);
  EXPECT_TRUE(fs::is_empty(shop / "spill"));
}

TEST(MemoryPlanFlags, AContinuedRunSharesWhatChangesNumbersOnly) {
  const Workshop shop;
  shop.make_data("data");
  const std::string run =
      "train --model mlp --data data --batch 16 --max-steps 8 --lr 0.02 --checkpoint run.ckpt --resume ";
  planned_json(shop, run + "--checkpoint-activations sqrt");
  planned_json(shop, run + "--offload-activations file");  // another exact plan
  expect_error(shop.ulp(run + "--activations bf16"), 1, "expected a checkpoint of a run with task");
}

TEST(MemoryPlanFlags, WrongUseIsRefused) {
  const Workshop shop;
  shop.make_data("data");
  const std::string run = "train --model mlp --data data --batch 16 --max-steps 1 ";
  expect_error(shop.ulp(run + "--checkpoint-activations all"), 2, "expected none, sqrt, every:K");
  expect_error(shop.ulp(run + "--checkpoint-activations every:0"), 2, "expected none, sqrt, every:K");
  expect_error(shop.ulp(run + "--activations fp4"), 2, "--activations");
  expect_error(shop.ulp(run + "--offload-optimizer host"), 2,
               "--offload-optimizer host is for a model on a GPU");
  expect_error(shop.ulp(run + "--offload-activations host"), 2, "--offload-activations file needs less");
  expect_error(shop.ulp(run + "--activations int8 --checkpoint-activations bytes:1MiB"), 2,
               "--activations int8 and --checkpoint-activations bytes:1MiB exclude each other");
  expect_error(shop.ulp(run + "--offload-folder ."), 2, "--offload-folder is for --offload-activations file");
  expect_error(shop.ulp(run + "--offload-optimizer file --offload-folder nowhere"), 3, "got 'nowhere'");
  expect_error(shop.ulp(run + "--offload-optimizer file --precision O3"), 2,
               "--offload-optimizer file needs --masters beside --precision O3");
  expect_error(shop.ulp(run + "--checkpoint-activations sqrt --watch"), 2,
               "--watch and plans of activations");
  expect_error(shop.ulp(run + "--offload-activations file --memory-budget 1GiB"), 2,
               "--memory-budget and --offload-activations file exclude each other");
  expect_error(shop.ulp(run + "--offload-optimizer file --zero 1"), 2, "--offload-optimizer and --zero");
  expect_error(shop.ulp(run + "--checkpoint-activations bytes:2KiB"), 1, "expected");
  expect_error(shop.ulp("memory mlp --offload-activations file"), 2, "expected activations in memory");
  expect_error(shop.ulp("memory mlp --fp8-recipe r.json"), 2, "--fp8-recipe needs an fp8 precision");
}

TEST(MemoryPlanFlags, MemoryProvesThePlansOfTrain) {
  const Workshop shop;
  write_file(
      shop / "fp8.json",
      R"({"type": "ulp.amp.Fp8Recipe", "version": 1, "layers": {"scaling": "current"}, "first": true})");
  const auto peak = [&](const std::string& flags) {
    const auto json =
        planned_json(shop, "memory resnet8 --shape 1,16,16 --batch 60 --optimizer adamw --prove " + flags);
    const auto predicted = json.value("peak_bytes", 0.0), measured = json.value("measured_bytes", 0.0);
    EXPECT_GE(predicted, 0.98 * measured) << flags;
    EXPECT_LE(predicted, 1.03 * measured) << flags;
    return measured;
  };
  const double whole = peak("");
  EXPECT_LT(peak("--checkpoint-activations sqrt"), whole);
  EXPECT_LT(peak("--moments int8 --checkpoint-activations every:6"), whole);
  EXPECT_LT(peak("--activations int4 --activation-masks"), whole);
  peak("--precision fp8:current --fp8-recipe fp8.json --checkpoint-activations sqrt");
}

TEST(MemoryPlanFlags, ABudgetTakesTheRestOfThePlanAsItIs) {
  const Workshop shop;
  shop.make_data("data");
  write_file(shop / "fp8.json",
             R"({"type": "ulp.amp.Fp8Recipe", "version": 1, "layers": {"scaling": "current"}})");
  const std::string run =
      "train --model resnet20 --data data --batch 32 --max-steps 2 --lr 0.01 --precision fp8:current "
      "--fp8-recipe fp8.json --memory-budget ";
  const auto whole = planned_json(shop, run + "1GiB")["memory"];
  EXPECT_TRUE(whole["changes"].empty());
  const auto budget = static_cast<int64_t>(0.9 * whole.value("peak_bytes", 0.0));
  const auto less = planned_json(shop, run + std::to_string(budget))["memory"];
  ASSERT_FALSE(less["changes"].empty());
  EXPECT_NE(less["changes"][0].get<std::string>().find("checkpointing"), std::string::npos) << less;
  EXPECT_LE(less.value("peak_bytes", budget + 1), budget);
  const auto planned =
      planned_json(shop, run + std::to_string(budget) + " --checkpoint-activations every:8")["memory"];
  for (const auto& change : planned["changes"])
    EXPECT_EQ(change.get<std::string>().find("checkpointing"), std::string::npos) << planned;
  EXPECT_LE(planned.value("peak_bytes", budget + 1), budget);
}

}  // namespace
