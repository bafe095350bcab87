// Runs that are interrupted or killed, and continued.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tool.h"

namespace {

using ulp::test::read_file;
using ulp::test::Workshop;
namespace fs = std::filesystem;

constexpr const char* kRun =
    "train --model mlp --data data --batch 16 --max-steps 3000 --lr 0.02 --threads 1 ";

/// True once the file is there.
bool wait_for_file(const fs::path& path) {
  for (int i = 0; i < 6000 && !fs::exists(path); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return fs::exists(path);
}

TEST(Interrupt, KilledRunContinuesBitForBit) {
  const Workshop shop;
  shop.make_data("data");
  ASSERT_EQ(shop.ulp(std::string(kRun) + "--out whole.safetensors").code, 0);
  const std::string args =
      std::string(kRun) + "--checkpoint run.ckpt --checkpoint-every 7 --resume --out resumed.safetensors";
  const pid_t process = shop.start(args);
  ASSERT_TRUE(wait_for_file(shop / "run.ckpt"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(process, SIGKILL);
  ASSERT_EQ(Workshop::wait(process), 128 + SIGKILL) << "the run ended before it could be killed";
  ASSERT_FALSE(fs::exists(shop / "resumed.safetensors"));
  const auto outcome = shop.ulp(args + " --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("\"first_step\": 0,"), std::string::npos) << "it started again from nothing";
  EXPECT_TRUE(read_file(shop / "whole.safetensors") == read_file(shop / "resumed.safetensors"));
}

TEST(Interrupt, CtrlCSavesTheCheckpointAndExitsWith130) {
  const Workshop shop;
  shop.make_data("data");
  const pid_t process = shop.start(
      "train --model mlp --data data --batch 16 --max-steps 100000000 --checkpoint run.ckpt "
      "--checkpoint-every 5");
  ASSERT_TRUE(wait_for_file(shop / "run.ckpt"));
  ::kill(process, SIGINT);
  EXPECT_EQ(Workshop::wait(process), 130);
  for (const auto& entry : fs::directory_iterator(shop.folder())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(Interrupt, ResumeWithOtherOptionsIsRefused) {
  const Workshop shop;
  shop.make_data("data");
  const std::string args = "train --model mlp --data data --batch 16 --max-steps 10 --checkpoint run.ckpt ";
  ASSERT_EQ(shop.ulp(args).code, 0);
  const auto outcome = shop.ulp(args + "--resume --lr 0.5");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("learning_rate"), std::string::npos) << outcome.err;
}

}  // namespace
