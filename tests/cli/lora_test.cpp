// Adapters in the tool: trained, continued, merged, and refused.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"
#include "ulp/base/safetensors.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;

/// A small decoder as a folder of transformers, and two texts; made once.
class LoraTool : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shop_ = new Workshop;
    std::string first, second;
    for (int i = 0; i < 200; ++i) {
      first += "a fine day, an awful hour\n";
      second += "an hour of a day; " + std::to_string(i % 7) + '\n';
    }
    write_file(*shop_ / "first.txt", first);
    write_file(*shop_ / "second.txt", second);
    good(
        "train --model llama --data first.txt --length 16 --batch 8 --max-steps 20 --lr 0.002 --threads 1 "
        "--out "
        "base.st");
    fs::create_directories(*shop_ / "llama");
    const ulp::SafetensorsFile file(*shop_ / "base.st");
    ulp::write_safetensors(*shop_ / "llama/model.safetensors", file.tensors(), {{"format", "pt"}});
    write_file(*shop_ / "llama/config.json", json{{"model_type", "llama"},
                                                  {"architectures", {"LlamaForCausalLM"}},
                                                  {"vocab_size", 256},
                                                  {"hidden_size", 128},
                                                  {"num_hidden_layers", 2},
                                                  {"num_attention_heads", 4},
                                                  {"num_key_value_heads", 2},
                                                  {"intermediate_size", 352},
                                                  {"max_position_embeddings", 16},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"rope_theta", 10000.0},
                                                  {"rope_scaling", nullptr},
                                                  {"hidden_act", "silu"}}
                                                 .dump());
    good(train("llama") + "--lora 4 --lora-alpha 8 --lora-targets q_proj,v_proj --out adapter");
  }
  static void TearDownTestSuite() { delete std::exchange(shop_, nullptr); }

  static std::string train(const std::string& init) {
    return "train --init " + init +
           " --data second.txt --length 16 --batch 8 --max-steps 30 --lr 0.004 --threads 1 ";
  }
  static Outcome good(const std::string& args) {
    const Outcome outcome = shop_->ulp(args);
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome;
  }
  static json json_of(const std::string& args) { return json::parse(good(args + " --json").out); }
  static double loss_of(const std::string& args) {
    return json_of("eval " + args + " --data second.txt")["loss"];
  }

  static Workshop* shop_;
};

Workshop* LoraTool::shop_ = nullptr;

TEST_F(LoraTool, WritesAFolderThatOtherCommandsMerge) {
  const double before = loss_of("llama"), after = loss_of("llama --adapter adapter");
  EXPECT_LT(after, before);
  good("lower llama --adapter adapter --out merged.ulp");
  EXPECT_NEAR(loss_of("merged.ulp"), after, 1e-4 * after);
  good("quantize llama --adapter adapter --mode weight-only --data second.txt --out merged.int8.ulp");
  EXPECT_NEAR(loss_of("merged.int8.ulp"), after, 0.02 * after);
  good("export llama --adapter adapter --to safetensors --out merged.safetensors");
  fs::create_directories(*shop_ / "merged");
  fs::copy_file(*shop_ / "merged.safetensors", *shop_ / "merged/model.safetensors");
  fs::copy_file(*shop_ / "llama/config.json", *shop_ / "merged/config.json");
  EXPECT_NEAR(loss_of("merged"), after, 1e-6 * after);
}

TEST_F(LoraTool, TrainsOnEveryBase) {
  for (const std::string base : {"fp32", "bf16", "int8", "int4", "nf4", "nf4 --lora-double-quant"}) {
    const json run =
        json_of(train("llama") + "--precision bf16 --lora 4 --lora-targets all-linear --lora-base " + base +
                " --out out");
    EXPECT_EQ(run["adapters"]["layers"], 14) << base;
    EXPECT_LT(run["test_loss"].get<double>(), loss_of("llama")) << base;
    EXPECT_LT(loss_of("llama --adapter out"), loss_of("llama")) << base;
  }
}

TEST_F(LoraTool, TrainsAnAdapterOn) {
  const json run = json_of(train("llama") + "--adapter adapter --out more");
  EXPECT_EQ(run["adapters"]["layers"], 4);
  EXPECT_LT(run["test_loss"].get<double>(), loss_of("llama --adapter adapter"));
  const json first = json::parse(read_file(*shop_ / "adapter/adapter_config.json"));
  EXPECT_EQ(json::parse(read_file(*shop_ / "more/adapter_config.json")), first);
}

TEST_F(LoraTool, KilledRunContinuesBitForBit) {
  const std::string args =
      "train --init llama --data second.txt --length 16 --batch 8 --max-steps 150 --threads 1 "
      "--precision bf16 --lora 4 --lora-dropout 0.1 --lora-targets q_proj,up_proj --lora-base nf4 ";
  good(args + "--out whole");
  const std::string saved = args + "--checkpoint run.ckpt --checkpoint-every 5 --resume --out resumed";
  const pid_t process = shop_->start(saved);
  for (int i = 0; i < 6000 && !fs::exists(*shop_ / "run.ckpt"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(process, SIGKILL);
  ASSERT_EQ(Workshop::wait(process), 128 + SIGKILL) << "the run ended before it could be killed";
  ASSERT_FALSE(fs::exists(*shop_ / "resumed"));
  EXPECT_GT(json_of(saved)["first_step"].get<int>(), 0);
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"})
    EXPECT_TRUE(read_file(*shop_ / "whole" / name) == read_file(*shop_ / "resumed" / name)) << name;
  // Adapters and their moments, not the base: 4 x 16 matrices of a few kilobytes.
  EXPECT_LT(fs::file_size(*shop_ / "run.ckpt"), 300'000U);
  // Another base, or other options, is another run.
  expect_error(shop_->ulp(train("llama") + "--checkpoint run.ckpt --resume --lora 4 --lora-targets q_proj"),
               1, "checkpoint of a run with");
}

TEST_F(LoraTool, RefusesByName) {
  const std::string begin = train("llama") + "--out bad ";
  const std::vector<std::pair<std::string, std::string>> usage = {
      {"--lora 0 --lora-targets q_proj", "--lora"},
      {"--lora 4", "--lora needs --lora-targets"},
      {"--lora-base nf4", "need --lora RANK"},
      {"--lora-targets q_proj", "need --lora RANK"},
      {"--lora 4 --adapter adapter", "--lora and --adapter exclude"},
      {"--adapter adapter --lora-alpha 3", "--lora-alpha and --adapter exclude"},
      {"--lora 4 --lora-targets q_proj --precision O2:bf16", "--precision O2:bf16"},
      {"--lora 4 --lora-targets q_proj --precision int8", "--precision int8"},
      {"--lora 4 --lora-targets q_proj --precision bf16 --masters split", "--masters"},
      {"--lora 4 --lora-targets q_proj --keep-zeros", "--keep-zeros"},
      {"--lora 4 --lora-targets q_proj --memory-budget 1GiB", "--memory-budget"},
      {"--lora 4 --lora-targets q_proj --lora-double-quant", "double_quant"}};
  for (const auto& [flags, says] : usage) expect_error(shop_->ulp(begin + flags), 2, says);
  expect_error(shop_->ulp("train --data second.txt --model llama --lora 4 --lora-targets q_proj"), 2,
               "need --init");
  expect_error(shop_->ulp(train("llama") + "--lora 4 --lora-targets q_proj --out bad.safetensors"), 2,
               "--out: writes a folder, got a name that ends in .safetensors");
  expect_error(shop_->ulp(begin + "--lora 4 --lora-targets query"), 1, "got 'query'");
  expect_error(shop_->ulp(begin + "--lora 129 --lora-targets q_proj"), 1, "smaller side");
  expect_error(shop_->ulp(begin + "--adapter nowhere"), 3, "folder of PEFT");
  expect_error(shop_->ulp("eval llama --data second.txt --adapter nowhere"), 3, "folder of PEFT");
  EXPECT_FALSE(fs::exists(*shop_ / "bad"));
  expect_error(shop_->ulp("lower adapter --out x.ulp"), 3, "--adapter merges it");
  good("lower llama --out plain.ulp");
  expect_error(shop_->ulp("eval plain.ulp --data second.txt --adapter adapter"), 3, "engine file");
  good("train --model gpt2 --data second.txt --length 16 --max-steps 1 --threads 1 --out gpt2.st");
  expect_error(shop_->ulp("lower gpt2.st --adapter adapter --out x.ulp"), 3, "does not fit 'gpt2.st'");
}

}  // namespace
