// ulp launch: processes that are started together, print together and end together; and training in them.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tool.h"

namespace {

using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;
namespace fs = std::filesystem;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// True once the file is there, with something in it.
bool appears(const fs::path& path) {
  for (int i = 0; i < 6000; ++i) {
    if (fs::exists(path) && !fs::is_empty(path)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Launch, SetsTheVariablesAndPrefixesLinesByRank) {
  const Workshop shop;
  write_file(shop / "s.sh",
             "echo $RANK $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR\n"
             "echo to stderr >&2\n"
             "printf 'no end'\n");
  const Outcome outcome = shop.ulp("launch -n 3 sh s.sh");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* rank : {"0", "1", "2"}) {
    const std::string prefix = std::string("[") + rank + "] ";
    EXPECT_TRUE(says(outcome.out, prefix + rank + " " + rank + " of 3 at 127.0.0.1\n")) << outcome.out;
    EXPECT_TRUE(says(outcome.out, prefix + "no end\n")) << outcome.out;
    EXPECT_TRUE(says(outcome.err, prefix + "to stderr\n")) << outcome.err;
  }
}

TEST(Launch, EndsTheOthersAndNamesTheProcessThatFailed) {
  const Workshop shop;
  write_file(shop / "s.sh", "if [ $RANK = 1 ]; then exit 7; fi\nexec sleep 300\n");
  const Outcome outcome = shop.ulp("launch -n 3 -- sh s.sh");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_TRUE(says(outcome.err, "ulp: rank 1 (process ")) << outcome.err;
  EXPECT_TRUE(says(outcome.err, ") ended with exit code 7; the others were ended\n")) << outcome.err;
}

TEST(Launch, NamesTheSignalAndKillsWhatDoesNotEnd) {
  const Workshop shop;
  write_file(shop / "s.sh",
             "trap '' TERM\n"
             "if [ $RANK = 0 ]; then kill -9 $$; fi\n"
             "while true; do sleep 0.05; done\n");
  const Outcome outcome = shop.ulp("launch -n 2 --grace 0.2 sh s.sh");
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_TRUE(says(outcome.err, "was killed by signal 9 (Killed)")) << outcome.err;
}

TEST(Launch, RefusesWhatItCannotStart) {
  const Workshop shop;
  expect_error(shop.ulp("launch -n 2 ./nothing"), 1,
               "could not start './nothing': No such file or directory");
  expect_error(shop.ulp("launch -n 0 true"), 2, "--processes");
  expect_error(shop.ulp("launch -n 2"), 2, "expected a command to start, got none");
  expect_error(shop.ulp("launch -n 2 --"), 2, "expected a command to start, got none");
}

TEST(Launch, HelpShowsExamples) {
  const Workshop shop;
  const Outcome outcome = shop.ulp("launch --help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(says(outcome.out, "ulp launch -n 2 ulp train")) << outcome.out;
}

/// The fp32 numbers of a safetensors file that holds nothing else.
std::vector<float> numbers_of(const fs::path& path) {
  const std::string bytes = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::vector<float> numbers((bytes.size() - 8 - header) / sizeof(float));
  std::memcpy(numbers.data(), bytes.data() + 8 + header, numbers.size() * sizeof(float));
  return numbers;
}

void expect_close(const fs::path& a, const fs::path& b, double tolerance) {
  const auto got = numbers_of(a), expected = numbers_of(b);
  ASSERT_EQ(got.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(double(got[i]) - double(expected[i])));
  EXPECT_LE(worst, tolerance) << a << ' ' << b;
}

constexpr const char* kTrain = "train --model mlp --data data --lr 0.02 --threads 1 ";

TEST(Launch, TwoProcessesTrainAsOneWithTwiceTheBatch) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string run = std::string(kTrain) + "--max-steps 20 --json ";
  ASSERT_EQ(shop.ulp(run + "--batch 16 --out one.safetensors").code, 0);
  const Outcome two = shop.ulp("launch -n 2 ulp " + run + "--batch 8 --out two.safetensors");
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_TRUE(says(two.out, "[0]   \"accuracy_percent\"")) << two.out;
  EXPECT_FALSE(says(two.out, "[1]")) << "one process shows the result: " << two.out;
  // 20 steps of sums in another order: some hundred units in the last place of weights below 1.
  expect_close(shop / "two.safetensors", shop / "one.safetensors", 1e-4);
  for (const char* zero : {"1", "2", "3"}) {
    const Outcome shared =
        shop.ulp("launch -n 2 ulp " + run + "--batch 8 --zero " + zero + " --out zero.safetensors");
    ASSERT_EQ(shared.code, 0) << shared.err;
    expect_close(shop / "zero.safetensors", shop / "one.safetensors", 1e-4);
  }
}

TEST(Launch, ProcessesWithPartsOfTheModelTrainAsOne) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string run = std::string(kTrain) + "--max-steps 10 --batch 16 ";
  ASSERT_EQ(shop.ulp(run + "--out one.safetensors").code, 0);
  const Outcome tensor =
      shop.ulp("launch -n 2 ulp " + run + "--parallel tensor --clip 100 --out two.safetensors");
  ASSERT_EQ(tensor.code, 0) << tensor.err;
  EXPECT_TRUE(says(tensor.out, "[0] fc1, fc2 split by 256 units")) << tensor.out;
  expect_close(shop / "two.safetensors", shop / "one.safetensors", 1e-4);
  for (const char* flags : {"--micro-batches 3", "--pipeline-schedule gpipe --accumulate 1 --clip 100"}) {
    const Outcome stages =
        shop.ulp("launch -n 2 ulp " + run + "--parallel pipeline " + flags + " --out two.safetensors");
    ASSERT_EQ(stages.code, 0) << stages.err;
    EXPECT_TRUE(says(stages.out, "[0] stage 0: flatten to ")) << stages.out;
    EXPECT_TRUE(says(stages.out, "[0] stage 1: ")) << stages.out;
    expect_close(shop / "two.safetensors", shop / "one.safetensors", 1e-4);
  }
}

TEST(Launch, PartsOfTheModelRefuseWhatTheyCannotDo) {
  const Workshop shop;
  shop.make_data("data", 64, 32);
  const std::string run = std::string(kTrain) + "--max-steps 1 --parallel ";
  expect_error(shop.ulp(run + "tensor"), 2, "is for several processes");
  expect_error(shop.ulp(run + "tensor --checkpoint run.ckpt --moments int8"), 2,
               "--parallel tensor and --checkpoint with --moments int8 or int4 exclude each other");
  expect_error(shop.ulp(run + "pipeline --precision int8"), 2, "precisions of 8 bits");
  expect_error(shop.ulp(run + "tensor --precision fp8:delayed --checkpoint run.ckpt"), 2,
               "--checkpoint with precisions of fp8");
  expect_error(shop.ulp(run + "tensor --precision nvfp4"), 2, "nvfp4 or --fp8-recipe");
  expect_error(shop.ulp(run + "tensor --zero 1"), 2, "--parallel tensor and --zero exclude each other");
  expect_error(shop.ulp(run + "pipeline --batch 3"), 2, "a --batch with fewer samples than --micro-batches");
  expect_error(shop.ulp(run + "pipeline --micro-batches 0"), 2, "--micro-batches");
}

std::string some_text() {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i % 97) + (i % 11 == 0 ? '\n' : ' ');
  return text;
}

TEST(Launch, NetworksOverTextShareParametersAndStagesNameWhatTheyCannotShare) {
  const Workshop shop;
  write_file(shop / "book.txt", some_text());
  const std::string run =
      "launch -n 2 ulp train --data book.txt --model gpt2 --length 16 --batch 4 --max-steps 2 --threads 1 ";
  const Outcome shares = shop.ulp(run + "--zero 3");
  EXPECT_EQ(shares.code, 0) << shares.err;
  const Outcome tied = shop.ulp(run + "--parallel pipeline --moments bf16");
  EXPECT_EQ(tied.code, 1);
  EXPECT_TRUE(says(tied.err, "expected no moments in bf16 for a weight that several stages have, got 'wte"))
      << tied.err;
  const Outcome wide = shop.ulp(run + "--parallel pipeline --moments bf16 --fp32-moments *wte*");
  EXPECT_EQ(wide.code, 0) << wide.err;
}

TEST(Launch, MoreStagesThanLayersAreRefused) {
  const Workshop shop;
  shop.make_data("data", 64, 32);
  const Outcome many =
      shop.ulp("launch -n 5 ulp " + std::string(kTrain) + "--max-steps 1 --batch 10 --parallel pipeline");
  EXPECT_EQ(many.code, 1);
  EXPECT_TRUE(says(many.err, "expected a layer with parameters for each of 5 processes")) << many.err;
}

TEST(Launch, SplitLayersComputeInEightBits) {
  const Workshop shop;
  write_file(shop / "book.txt", some_text());
  const auto loss = [&](const std::string& start, const std::string& flags) {
    const Outcome outcome = shop.ulp(start +
                                     "train --data book.txt --length 32 --batch 8 --max-steps 12 --threads 1 "
                                     "--json " +
                                     flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const size_t at = outcome.out.find("\"test_loss\": ");
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + 13));
  };
  for (const std::string precision : {"--precision int8 ", "--precision fp8:delayed "}) {
    const double one = loss("", precision), two = loss("launch -n 2 ulp ", precision + "--parallel tensor");
    EXPECT_GT(one, 0);
    EXPECT_NEAR(two, one, 0.05 * one) << precision;
  }
}

TEST(Launch, PlacesLayersByMemory) {
  const Workshop shop;
  shop.make_data("data", 64, 32);
  const std::string run = "launch -n 2 ulp " + std::string(kTrain) + "--max-steps 2 --batch 16 --parallel ";
  const Outcome fits = shop.ulp(run + "pipeline --stage-memory 64MiB --checkpoint run.ckpt");
  ASSERT_EQ(fits.code, 0) << fits.err;
  EXPECT_TRUE(says(fits.out, " bytes\n[0] stage 1: ")) << fits.out;
  const Outcome little = shop.ulp(run + "pipeline --stage-memory 100KiB");
  EXPECT_EQ(little.code, 1);
  EXPECT_TRUE(says(little.err, "expected budgets that hold the model, got 102400 bytes")) << little.err;
  EXPECT_EQ(shop.ulp(run + "pipeline --stage-memory much").code, 2);
  const Outcome tensor = shop.ulp(run + "tensor --stage-memory 1GiB");
  EXPECT_EQ(tensor.code, 2);
  EXPECT_TRUE(says(tensor.err, "--stage-memory needs --parallel pipeline")) << tensor.err;
}

/// When the file was last written; the least value for none.
fs::file_time_type written(const fs::path& path) {
  std::error_code missing;
  const fs::file_time_type time = fs::last_write_time(path, missing);
  return missing ? fs::file_time_type::min() : time;
}

/// True once the file is written after that.
bool is_written_after(const fs::path& path, fs::file_time_type before) {
  for (int i = 0; i < 30000; ++i) {
    if (written(path) > before) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

/// A script that leaves its number in pid.RANK and becomes the tool.
void write_worker(const Workshop& shop, const std::string& args) {
  write_file(shop / "worker.sh", "echo $$ > pid.$RANK\nexec '" ULP_TOOL "' " + args + "\n");
}

/// Kills rank 1 of a run with these flags, and starts the run again.
void check_killed_run(const std::string& flags) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string run = std::string(kTrain) + "--batch 8 --max-steps 500 " + flags;
  ASSERT_EQ(shop.ulp("launch -n 2 ulp " + run + "--checkpoint other.ckpt --out whole.safetensors").code, 0);
  write_worker(shop, run + "--checkpoint run.ckpt --checkpoint-every 5 --resume --out resumed.safetensors");
  const pid_t launcher = shop.start("launch -n 2 sh worker.sh");
  ASSERT_TRUE(appears(shop / "run.ckpt"));
  ASSERT_TRUE(appears(shop / "pid.1"));
  const auto begin = std::chrono::steady_clock::now();
  ::kill(std::stoi(read_file(shop / "pid.1")), SIGKILL);
  EXPECT_EQ(Workshop::wait(launcher), 128 + SIGKILL) << "the run ended before it could be killed";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_FALSE(fs::exists(shop / "resumed.safetensors"));
  const Outcome outcome = shop.ulp("launch -n 2 sh worker.sh");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(read_file(shop / "resumed.safetensors") == read_file(shop / "whole.safetensors"));
  int shares = 0;
  for (const auto& entry : fs::directory_iterator(shop.folder()))
    shares += entry.path().filename().string().starts_with("run.ckpt.shard-");
  EXPECT_EQ(shares, says(flags, "shares") ? 2 : 0) << "those of the last checkpoint alone";
}

/// Kills a run with these flags again and again, another process at another moment after a checkpoint each
/// time, and lets it end.
void check_often_killed_run(const std::string& flags) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string run = std::string(kTrain) + "--batch 8 --max-steps 100 --clip 1 " + flags;
  ASSERT_EQ(shop.ulp("launch -n 2 ulp " + run + "--checkpoint other.ckpt --out whole.safetensors").code, 0);
  write_worker(shop, run + "--checkpoint run.ckpt --checkpoint-every 1 --resume --out resumed.safetensors");
  for (const int pause : {0, 1, 5, 23, 40, 77}) {
    const std::string pid = "pid." + std::to_string(pause % 2);
    fs::remove(shop / pid);
    const fs::file_time_type before = written(shop / "run.ckpt");
    const pid_t launcher = shop.start("launch -n 2 sh worker.sh");
    ASSERT_TRUE(appears(shop / pid));
    ASSERT_TRUE(is_written_after(shop / "run.ckpt", before));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    ::kill(std::stoi(read_file(shop / pid)), SIGKILL);
    EXPECT_EQ(Workshop::wait(launcher), 128 + SIGKILL) << "the run ended before it could be killed";
  }
  const Outcome outcome = shop.ulp("launch -n 2 sh worker.sh");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(read_file(shop / "resumed.safetensors") == read_file(shop / "whole.safetensors"));
}

TEST(Launch, SplitLayersGoOnFromTheirCheckpointToTheSameBytes) {
  check_often_killed_run("--parallel tensor --optimizer adamw ");
}

TEST(Launch, StagesGoOnFromTheirCheckpointToTheSameBytes) {
  check_often_killed_run("--parallel pipeline --precision fp16 --momentum 0.9 ");
}

TEST(Launch, PartsOfTheModelGoOnInAnotherWayAndInOneProcess) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string run = std::string(kTrain) + "--optimizer adamw --batch 16 --max-steps 1000 ";
  const std::string files = "--checkpoint run.ckpt --resume --checkpoint-every 10 ";
  const auto part = [&](const std::string& start) {
    fs::remove(shop / "pid.0");
    write_worker(shop, run + files + start);
    const fs::file_time_type before = written(shop / "run.ckpt");
    const pid_t launcher = shop.start("launch -n 2 sh worker.sh");
    ASSERT_TRUE(is_written_after(shop / "run.ckpt", before));
    ::kill(launcher, SIGINT);
    ASSERT_EQ(Workshop::wait(launcher), 130) << "the run ended before it could be interrupted: " << start;
  };
  part("--parallel pipeline");
  part("--parallel tensor");
  const Outcome outcome = shop.ulp(run + files + "--out resumed.safetensors --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(says(outcome.out, "\"first_step\": 0,")) << outcome.out;
}

TEST(Launch, AKilledProcessEndsTheRunAndARerunGoesOnToTheSameBytes) {
  check_killed_run("--zero 2 --momentum 0.9 ");
}

TEST(Launch, SoItDoesWithACheckpointInShares) {
  check_killed_run("--zero 3 --optimizer adamw --checkpoint-shares ");
}

TEST(Launch, RefusesFlagsThatDoNotGoTogether) {
  const Workshop shop;
  shop.make_data("data", 32, 16);
  const std::string run = std::string("launch -n 2 ulp ") + kTrain;
  for (const char* flags :
       {"--checkpoint-shares", "--zero 2 --watch", "--zero 1 --keep-zeros --init m.safetensors"}) {
    const Outcome outcome = shop.ulp(run + flags);
    EXPECT_EQ(outcome.code, 2) << flags << ": " << outcome.err;
  }
  const Outcome alone = shop.started(std::string(kTrain), "RANK=0");
  EXPECT_EQ(alone.code, 1);
  EXPECT_TRUE(says(alone.err, "expected WORLD_SIZE beside RANK")) << alone.err;
}

TEST(Launch, CtrlCLetsAllProcessesStopAtOneStepAndSave) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const pid_t launcher =
      shop.start("launch -n 2 ulp " + std::string(kTrain) +
                 "--batch 8 --max-steps 100000000 --checkpoint run.ckpt --checkpoint-every 5");
  ASSERT_TRUE(appears(shop / "run.ckpt"));
  ::kill(launcher, SIGINT);
  EXPECT_EQ(Workshop::wait(launcher), 130);
  for (const auto& entry : fs::directory_iterator(shop.folder()))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
}

TEST(Launch, ARunGoesOnWithAnotherNumberOfProcesses) {
  const Workshop shop;
  shop.make_data("data", 128, 32);
  const std::string files = "--checkpoint run.ckpt --resume ";
  // The schedule must be that of the whole run: it is ended in its middle.
  const std::string run = std::string(kTrain) + "--optimizer adamw --clip 1 --max-steps 1000 ";
  ASSERT_EQ(shop.ulp(run + "--batch 16 --out one.safetensors").code, 0);
  const pid_t launcher = shop.start("launch -n 2 ulp " + run + files +
                                    "--batch 8 --zero 1 --checkpoint-every 10 --out two.safetensors");
  ASSERT_TRUE(appears(shop / "run.ckpt"));
  ::kill(launcher, SIGINT);
  ASSERT_EQ(Workshop::wait(launcher), 130) << "the run ended before it could be interrupted";
  expect_error(shop.ulp(run + files + "--batch 8 --out two.safetensors"), 1, "batch 8, got 16");
  const Outcome outcome = shop.ulp(run + files + "--batch 16 --out two.safetensors --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(says(outcome.out, "\"first_step\": 0,")) << outcome.out;
  EXPECT_TRUE(fs::exists(shop / "two.safetensors"));
}

}  // namespace
