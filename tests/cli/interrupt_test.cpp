// Runs that are interrupted or killed, and continued.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "tool.h"

namespace {

using ulp::test::read_file;
using ulp::test::Workshop;
namespace fs = std::filesystem;

constexpr const char* kRun =
    "train --model mlp --data data --batch 16 --max-steps 1000 --lr 0.02 --threads 1 ";

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

constexpr int kMoments = 20;
/// So many runs must have been ended before their own end. Few: the machine may be busy while the
/// undisturbed run is timed, and quiet afterwards.
constexpr int kFewestEnded = 3;
constexpr int kSignals[] = {SIGKILL, SIGTERM, SIGINT};

/// Runs the tool kMoments times and ends each run a little later after the start of its main(), by the
/// signals in turn. After each the files are there whole, with the bytes of an undisturbed run, or not at
/// all; after a last run that nobody ends they are there, and nothing else was left. After a run that came
/// to its own end these files and the checkpoint are removed, so that the next one begins anew.
void end_at_many_moments(const Workshop& shop, const std::string& args,
                         std::chrono::duration<double> undisturbed,
                         const std::map<std::string, std::string>& expected,
                         const std::string& checkpoint = "") {
  int ended = 0;
  for (int i = 0; i < kMoments; ++i) {
    const int signal = kSignals[i % std::size(kSignals)];
    const pid_t process = shop.start_copy(args);
    std::this_thread::sleep_for(undisturbed * (i + 1) / kMoments);
    ::kill(process, signal);
    const int code = Workshop::wait(process);
    EXPECT_TRUE(code == 0 || code == 130 || code == 128 + signal) << "moment " << i << ": " << code;
    for (const auto& [name, bytes] : expected) {
      if (!fs::exists(shop / name)) continue;
      EXPECT_TRUE(read_file(shop / name) == bytes) << name << " at moment " << i;
    }
    if (code != 0) ++ended;
    if (code != 0 || i + 1 == kMoments) continue;
    for (const auto& [name, bytes] : expected) fs::remove(shop / name);
    if (!checkpoint.empty()) fs::remove(shop / checkpoint);
  }
  EXPECT_GE(ended, kFewestEnded);
  const auto outcome = shop.ulp(args);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const auto& [name, bytes] : expected) EXPECT_TRUE(read_file(shop / name) == bytes) << name;
  for (const auto& entry : fs::directory_iterator(shop.folder()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
}

/// Seconds of a run that must succeed.
std::chrono::duration<double> timed(const Workshop& shop, const std::string& args) {
  const auto begin = std::chrono::steady_clock::now();
  const auto outcome = shop.ulp(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return std::chrono::steady_clock::now() - begin;
}

TEST(Interrupt, TrainingEndedAtAnyMomentContinuesToTheSameBytes) {
  const Workshop shop;
  shop.make_data("data", 64, 16);
  const std::string run = "train --model mlp --data data --batch 16 --max-steps 150 --lr 0.02 --threads 1 ";
  const auto undisturbed =
      timed(shop, run + "--checkpoint whole.ckpt --checkpoint-every 1 --out whole.safetensors");
  end_at_many_moments(
      shop, run + "--checkpoint run.ckpt --checkpoint-every 1 --resume --out resumed.safetensors",
      undisturbed, {{"resumed.safetensors", read_file(shop / "whole.safetensors")}}, "run.ckpt");
  EXPECT_TRUE(read_file(shop / "run.ckpt") == read_file(shop / "whole.ckpt"));
}

TEST(Interrupt, QuantizationEndedAtAnyMomentContinuesToTheSameBytes) {
  const Workshop shop;
  shop.make_data("data", 64, 16);
  timed(shop, "train --model mlp --data data --batch 16 --max-steps 4 --threads 1 --out m.safetensors");
  const std::string run =
      "quantize m.safetensors --mode qat --data data --batch 16 --max-steps 40 --test 16 --threads 1 ";
  const auto undisturbed = timed(shop, run + "--out whole.ulp --save-recipe whole.json");
  end_at_many_moments(
      shop, run + "--checkpoint q.ckpt --checkpoint-every 1 --resume --out q.ulp --save-recipe used.json",
      undisturbed, {{"q.ulp", read_file(shop / "whole.ulp")}, {"used.json", read_file(shop / "whole.json")}},
      "q.ckpt");
  const auto other = shop.ulp(run + "--checkpoint q.ckpt --resume --learned scale --out other.ulp");
  EXPECT_EQ(other.code, 1) << "a checkpoint of another recipe was taken";
  EXPECT_FALSE(fs::exists(shop / "other.ulp"));
}

/// Pruning of a small network that saves itself at each step: at any moment it may be ended.
void end_pruning_at_many_moments(const std::string& how) {
  const Workshop shop;
  shop.make_data("data", 64, 16);
  timed(shop, "train --model mlp --data data --batch 16 --max-steps 4 --threads 1 --out m.safetensors");
  const std::string run =
      "prune m.safetensors --data data --samples 32 --test 16 --batch 16 --threads 1 --no-latency --finetune "
      "--loss kd:T=4,alpha=0.5 " +
      how + " --checkpoint run.ckpt --checkpoint-every 1 --resume ";
  const auto undisturbed = timed(shop, run + "--out whole.safetensors");
  fs::remove(shop / "run.ckpt");
  end_at_many_moments(shop, run + "--out parts.safetensors", undisturbed,
                      {{"parts.safetensors", read_file(shop / "whole.safetensors")}}, "run.ckpt");
}

TEST(Interrupt, PrunedWeightsThatLearnFromTheDenseNetworkContinueToTheSameBytes) {
  end_pruning_at_many_moments(
      "--score movement --sparsity 0.8 --prune-schedule cubic --begin 2 --end 14 --frequency 3 "
      "--max-steps "
      "20");
}

TEST(Interrupt, CutChannelsThatLearnFromTheDenseNetworkContinueToTheSameBytes) {
  end_pruning_at_many_moments(
      "--method channels --keep macs=0.5 --steps 2 --regularizer growing --lambda 0.01 --growth 0.01 "
      "--max-steps 25");
}

TEST(Interrupt, ScoresThatTrainingGathersAreInTheCheckpoint) {
  const Workshop shop;
  shop.make_data("data", 64, 16);
  ulp::test::write_file(shop / "movement.json", R"({"type": "ulp.prune.Recipe", "version": 1,
    "score": "movement", "amount": {"fraction": 0.75, "of": "all"},
    "schedule": {"kind": "cubic", "begin": 2, "end": 37, "frequency": 7}})");
  const std::string run =
      "train --model mlp --data data --batch 16 --max-steps 60 --threads 1 --prune movement.json ";
  const auto undisturbed = timed(shop, run + "--checkpoint w.ckpt --checkpoint-every 1 --out w.safetensors");
  end_at_many_moments(shop, run + "--checkpoint run.ckpt --checkpoint-every 1 --resume --out p.safetensors",
                      undisturbed, {{"p.safetensors", read_file(shop / "w.safetensors")}}, "run.ckpt");
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
