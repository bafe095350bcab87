// `ulp train` and `ulp eval` over every kind of data and with every kind of flag.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::Outcome;
using ulp::test::Workshop;
using ulp::test::write_file;

const std::string kAnyRate = "train --model mlp --data data --batch 16 --max-steps 12 --threads 1 --json ";
const std::string kQuick = kAnyRate + "--lr 0.02 ";

nlohmann::json expect_json(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(TrainFlags, EachPrecisionScalerAndKindOfMastersRuns) {
  const Workshop shop;
  shop.make_data("data");
  for (const char* flags :
       {"--precision mixed_bfloat16", "--precision O1", "--precision O2 --scaler apex --clip 1",
        "--precision fp16 --scaler static:8", "--precision fp16 --scaler deepspeed --accumulate 2",
        "--precision bf16 --masters split --optimizer adamw", "--precision bf16 --masters stochastic",
        "--precision O3:bf16 --masters kahan --schedule cosine", "--precision fp32 --clip 0.5",
        "--precision fp8:delayed --masters split --accumulate 2", "--precision nvfp4"}) {
    const auto json = expect_json(shop.ulp(kQuick + flags));
    EXPECT_LT(json.value("last_loss", 100.0), 3.0) << flags;
  }
}

TEST(TrainFlags, ASegmentationNetworkIsRefusedBeforeTraining) {
  const Workshop shop;
  shop.make_data("data");
  expect_error(shop.ulp("train --model unet --data data"), 2, "--model unet gives a class for each pixel");
  expect_error(shop.ulp("distill --exits layer1 --student unet --data data --out s.safetensors"), 2,
               "unet gives a class for each pixel");
}

TEST(TrainFlags, LossesThatAreNotFiniteEndARunAfterSoManyInARow) {
  const Workshop shop;
  shop.make_data("data");
  const Outcome scaled = shop.ulp(kAnyRate + "--lr 1e30 --warmup 0 --precision fp16 --max-skips 3");
  EXPECT_EQ(scaled.code, 1) << scaled.err;
  EXPECT_NE(scaled.err.find("the last of 3 in a row"), std::string::npos) << scaled.err;
  const Outcome plain = shop.ulp(kAnyRate + "--lr 1e30 --warmup 0");
  EXPECT_EQ(plain.code, 1) << plain.err;
  EXPECT_NE(plain.err.find("expected a finite loss"), std::string::npos) << plain.err;
  EXPECT_EQ(plain.err.find("in a row"), std::string::npos) << plain.err;
  expect_error(shop.ulp(kAnyRate + "--max-skips 0"), 2, "--max-skips");
}

TEST(TrainFlags, AnFp8RecipeChoosesLayersAndBelongsToTheRun) {
  const Workshop shop;
  shop.make_data("data");
  write_file(shop / "fp8.json",
             R"({"type": "ulp.amp.Fp8Recipe", "version": 1, "layers": {"history": 4}, "last": true})");
  const std::string run = kQuick + "--precision fp8:delayed --fp8-recipe fp8.json --checkpoint run.ckpt ";
  const auto json = expect_json(shop.ulp(run + "--watch --report watch.html"));
  EXPECT_EQ(json["fp8_layers"], 2);
  EXPECT_EQ(json["fp8_near_misses"].size(), 1U);
  EXPECT_NE(ulp::test::read_file(shop / "watch.html").find("Tensors of fp8 layers"), std::string::npos);
  const Outcome other = shop.ulp(kQuick + "--precision fp8:delayed --checkpoint run.ckpt --resume");
  EXPECT_EQ(other.code, 1) << other.err;
  EXPECT_NE(other.err.find("expected a checkpoint of a run with"), std::string::npos) << other.err;
  EXPECT_EQ(shop.ulp(kQuick + "--fp8-recipe fp8.json").code, 2);
  expect_error(shop.ulp(kQuick + "--precision mxfp8 --fp8-recipe fp8.json"), 3,
               R"(expected "layers": {"scaling": "mxfp8"} in the recipe 'fp8.json')");
  write_file(shop / "fp8.json", R"({"type": "ulp.amp.Fp8Recipe", "version": 1, "layers": {"scaling": "x"}})");
  EXPECT_EQ(shop.ulp(kQuick + "--precision fp8:delayed --fp8-recipe fp8.json").code, 3);
}

TEST(TrainFlags, FlagsChangeTheRun) {
  const Workshop shop;
  shop.make_data("data");
  const auto loss = [&](const std::string& flags) {
    return expect_json(shop.ulp(kAnyRate + flags)).value("test_loss", 0.0);
  };
  const double plain = loss("--lr 0.02");
  EXPECT_EQ(loss("--lr 0.02"), plain);
  for (const char* flags :
       {"--lr 0.02 --accumulate 2", "--lr 0.02 --clip 0.05", "--optimizer adam --lr 0.001",
        "--lr 0.02 --schedule constant", "--lr 0.02 --precision bf16 --masters stochastic"}) {
    EXPECT_NE(loss(flags), plain) << flags;
  }
  const auto skipping = expect_json(shop.ulp(kQuick + "--precision fp16 --init-scale 1e9"));
  EXPECT_GT(skipping.value("skipped_steps", 0), 3);
}

TEST(TrainFlags, MastersResumeBitForBit) {
  const Workshop shop;
  shop.make_data("data");
  const std::string args =
      kQuick + "--precision bf16 --accumulate 2 --clip 0.5 --checkpoint run.ckpt --masters ";
  expect_json(shop.ulp(args + "split --out whole.safetensors"));
  expect_json(shop.ulp(args + "split --resume --out same.safetensors"));  // nothing left to do
  EXPECT_TRUE(ulp::test::read_file(shop / "whole.safetensors") ==
              ulp::test::read_file(shop / "same.safetensors"));
  expect_error(shop.ulp(args + "kahan --resume"), 1, "masters \"kahan\", got \"split\"");
}

TEST(TrainFlags, InitStartsFromAModelsWeights) {
  const Workshop shop;
  shop.make_data("data");
  const Outcome trained =
      shop.ulp("train --model mlp --data data --epochs 3 --batch 16 --lr 0.02 --out m.safetensors --json");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string on = "train --data data --batch 16 --max-steps 1 --lr 1e-12 --json --init ";
  const Outcome outcome = shop.ulp(on + "m.safetensors");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto before = nlohmann::json::parse(trained.out), after = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(after["model"], "mlp");
  EXPECT_NEAR(after["test_loss"], before["test_loss"], 1e-5);
  expect_error(shop.ulp(on + "m.safetensors --model lenet5"), 2, "holds mlp, not --model lenet5");
  expect_error(shop.ulp(on + "none.safetensors"), 3, "none.safetensors");
  ASSERT_EQ(shop.ulp("lower m.safetensors --out m.ulp").code, 0);
  expect_error(shop.ulp(on + "m.ulp"), 3, "for --init, got 'm.ulp'");
}

TEST(TrainFlags, ImpossibleCombinationsAreWrongUse) {
  const Workshop shop;
  shop.make_data("data");
  expect_error(shop.ulp(kQuick + "--masters split"), 2,
               "--masters split is for bf16 and fp16 parameters, and --precision fp32");
  expect_error(shop.ulp(kQuick + "--precision fp16 --masters split"), 2, "--precision fp16");
  expect_error(shop.ulp(kQuick + "--scaler apex"), 2, "--precision fp32");
  expect_error(shop.ulp(kQuick + "--precision O3 --clip 1"), 2,
               "--clip needs --masters beside --precision O3");
  expect_error(shop.ulp("train --data data --model gpt2"), 2, "--model gpt2");
  const auto excludes = [&](const std::string& flags, const std::string& text) {
    expect_error(shop.ulp(kQuick + "--compile " + flags), 2, text);
  };
  excludes("--precision fp16",
           "--compile is for --precision fp32 and --precision bf16, and --precision fp16");
  for (const char* other : {"--watch", "--zero", "--memory-budget"})
    excludes(std::string(other) + (other == std::string("--zero") ? " 1"
                                   : other[2] == 'm'              ? " 1GiB"
                                                                  : ""),
             std::string("--compile and ") + other);
  excludes("--checkpoint-activations sqrt", "--compile and plans of activations");
  excludes("--parallel tensor", "--compile and --parallel");
}

TEST(TrainFlags, CompiledStepsTrainAndResume) {
  const Workshop shop;
  shop.make_data("data");
  const auto plain = expect_json(shop.ulp(kQuick + "--clip 0.5"));
  const std::string run = kQuick + "--clip 0.5 --compile --checkpoint run.ckpt ";
  const auto whole = expect_json(shop.ulp(run + "--out whole.safetensors"));
  EXPECT_EQ(whole["compiled"], true);
  EXPECT_NEAR(whole.value("last_loss", 100.0), plain.value("last_loss", -100.0), 1e-4);
  EXPECT_EQ(plain.find("compiled"), plain.end());
  expect_json(shop.ulp(run + "--resume --out same.safetensors"));  // nothing left to do
  EXPECT_TRUE(ulp::test::read_file(shop / "whole.safetensors") ==
              ulp::test::read_file(shop / "same.safetensors"));
  expect_error(shop.ulp(kQuick + "--clip 0.5 --checkpoint run.ckpt --resume"), 1,
               "expected a checkpoint of a run with compile false, got true");
}

TEST(TrainFlags, HelpSaysWhatTheScalersAre) {
  EXPECT_NE(Workshop().ulp("train --help").out.find("one of pytorch, keras"), std::string::npos);
}

TEST(TrainFlags, WrongValuesAreWrongUseAndNameTheFlag) {
  const Workshop shop;
  shop.make_data("data");
  const auto refused = [&](const std::string& flags, const std::string& says) {
    expect_error(shop.ulp(kQuick + flags), 2, says);
  };
  refused("--clip -1", "--clip: expected a number in (0, 3.40282e+38], got -1");
  refused("--accumulate 0", "--accumulate: expected a whole number in [1, 2147483647], got 0");
  refused("--epochs x", "--epochs: expected a whole number in [1, 2147483647], got x");
  refused("--warmup nan", "--warmup: expected a number in [0, 1), got nan");
  refused("--growth-interval 99999999999999999999",
          "--growth-interval: expected a whole number in [1, 2147483647]");
  refused("--seed -1", "--seed: expected a whole number >= 0, got -1");
  refused("--precision fp16 --scaler static:x", "static:S");
  refused("--precision fp7", "bf16");
  refused("--masters fp8", "--masters: expected fp32, split, stochastic or kahan, got fp8");
  refused("--schedule staircase", "one_cycle");
  refused("--length 0", "expected a whole number in [1, 2147483647], got 0");
  refused("--checkpoint-every -1", "expected a whole number in [0, 2147483647], got -1");
  refused("--watch-every 0", "--watch-every: expected a whole number >= 1, got 0");
  expect_error(shop.ulp("train --data data --batch 0"), 2,
               "--batch: expected a whole number in [1, 2147483647], got 0");
  refused("--epochs 99999999999999999999", "--epochs: expected a whole number in [1, 2147483647]");
  refused("--epochs 9223372036854775807", "--epochs: expected a whole number in [1, 2147483647]");
  refused("--seed 18446744073709551616", "--seed: expected a whole number below 2^64");
  refused("--weight-decay inf", "--weight-decay: expected a number in [0, 3.40282e+38], got inf");
  refused("--scaler zz", "--scaler");
  refused("--precision fp16 --scaler static:0", "expected a scale > 0");
  refused("--precision fp16 --init-scale 1e39", "--init-scale");
  refused("--precision tf32", "tf32");
  refused("--watch-format fp7", "fp7");
  for (const std::string rate : {"nan", "inf", "1e300"}) {
    expect_error(shop.ulp(kAnyRate + "--lr " + rate), 2,
                 "--lr: expected a number in (0, 3.40282e+38], got " + rate);
  }
}

TEST(TrainFlags, HelpTellsDefaultsAndWords) {
  const std::string help = Workshop().ulp("train --help").out;
  for (const char* part :
       {"--lr FLOAT ", "(default: 0.2 for sgd, 0.001 for the others)", "--batch INT=128", "--seed UINT=1",
        "--moments TEXT:{fp32,bf16,int8,int4}=fp32", "--fp32-moments TEXT", "O2:bf16: bf16 model",
        "--masters TEXT:{fp32,split,stochastic,kahan}", "(default: sgd; text: adamw)", "--no-augment",
        "--schedule TEXT:{triangle,constant", "}=triangle", "--watch-format TEXT=fp16"})
    EXPECT_NE(help.find(part), std::string::npos) << part << " is not in " << help;
}

TEST(TrainWatch, ShowsSampledStepsAndWritesAPageWithoutChangingTheRun) {
  const Workshop shop;
  shop.make_data("data");
  const Outcome plain = shop.ulp(kQuick + "--precision fp16");
  const Outcome watched = shop.ulp(kQuick + "--precision fp16 --watch --watch-every 5 --report watch.html");
  EXPECT_EQ(expect_json(watched).value("test_loss", 0.0), expect_json(plain).value("test_loss", 1.0));
  EXPECT_EQ(plain.err.find("underflow"), std::string::npos);
  for (const char* step : {"step 0, fp16: underflow", "step 5, fp16: underflow", "step 10, fp16: underflow"})
    EXPECT_NE(watched.err.find(step), std::string::npos) << step << " is not in " << watched.err;
  EXPECT_NE(ulp::test::read_file(shop / "watch.html").find("Loss scale"), std::string::npos);
  expect_error(shop.ulp(kQuick + "--watch --watch-format fp17"), 2, "fp17");
  expect_error(shop.ulp(kQuick + "--report nowhere/watch.html"), 1, "nowhere");
}

TEST(TrainWatch, SkippedStepsAndRunsThatFailSayWhy) {
  const Workshop shop;
  shop.make_data("data");
  const Outcome skipped = shop.ulp(kQuick + "--precision fp16 --init-scale 1e9 --watch");
  EXPECT_NE(skipped.err.find("skipped: gradient of "), std::string::npos) << skipped.err;
  const Outcome failed = shop.ulp(kAnyRate + "--lr 1e30 --watch-every 1 --report failed.html");
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("forward: aten::"), std::string::npos) << failed.err;
  EXPECT_TRUE(std::filesystem::exists(shop / "failed.html"));
}

TEST(TrainData, ArraysTrainAndEvaluate) {
  const Workshop shop;
  shop.make_rows();
  const auto json = expect_json(shop.ulp(
      "train --data x.npy,y.npy --batch 16 --epochs 20 --lr 0.05 --threads 1 --out m.safetensors --json"));
  EXPECT_EQ(json.value("model", ""), "mlp");
  EXPECT_GT(json.value("accuracy_percent", 0.0), 90.0);
  const auto eval = expect_json(shop.ulp("eval m.safetensors --data x.npy,y.npy --json"));
  EXPECT_EQ(eval.value("accuracy_percent", 0.0), json.value("accuracy_percent", 1.0));
  EXPECT_EQ(eval.value("total", 0), 20);
}

TEST(TrainData, TextTrainsAndEvaluates) {
  const Workshop shop;
  write_file(shop / "book.txt", repeated("the cat sat on the mat. ", 100));
  for (const char* model : {"gpt2", "lstm"}) {
    const std::string file = std::string(model) + ".safetensors";
    const auto json = expect_json(
        shop.ulp(std::string("train --data book.txt --length 16 --batch 16 --epochs 6 --threads 1 ") +
                 "--lr 0.01 --precision bf16 --model " + model + " --json --out " + file));
    EXPECT_LT(json.value("test_loss", 100.0), 2.0) << model;  // log(256) = 5.5 for a guess
    const auto eval = expect_json(shop.ulp("eval " + file + " --data book.txt --json"));
    EXPECT_NEAR(eval.value("loss", 0.0), json.value("test_loss", 1.0), 1e-6);
    expect_error(shop.ulp("eval " + file), 1, "'language'");
    EXPECT_EQ(shop.ulp("lower " + file + " --out x.ulp").code, 0) << model;
  }
  EXPECT_NE(shop.ulp("eval gpt2.safetensors --data book.txt").out.find("bits a byte"), std::string::npos);
}

TEST(TrainData, LabelledTextTrainsAndEvaluates) {
  const Workshop shop;
  write_file(shop / "t.tsv", repeated("good\ta fine day\nbad\ta grey day\ngood\tfine, fine\n", 40));
  const auto json = expect_json(
      shop.ulp("train --data t.tsv --length 16 --batch 8 --epochs 6 --threads 1 --out b.safetensors --json"));
  EXPECT_EQ(json.value("model", ""), "bert");
  EXPECT_GT(json.value("accuracy_percent", 0.0), 90.0);
  const auto eval = expect_json(shop.ulp("eval b.safetensors --data t.tsv --json"));
  EXPECT_EQ(eval.value("total", 0), 12);
  EXPECT_GT(eval.value("accuracy_percent", 0.0), 90.0);
}

TEST(TrainData, BadDataIsExitCodeThree) {
  const Workshop shop;
  shop.make_rows();
  write_file(shop / "short.txt", "too short");
  expect_error(shop.ulp("train --data short.txt"), 3, "short.txt");
  write_file(shop / "cut.npz", std::string("PK\x03\x04") + std::string(50, 'x'));
  expect_error(shop.ulp("train --data cut.npz"), 3, "cut.npz");
  expect_error(shop.ulp("train --data x.npy"), 3, "X.npy,Y.npy");
  expect_error(shop.ulp("train --data x.npy,x.npy"), 3, "expected y");
  expect_error(shop.ulp("train --data x.npy,none.npy"), 3, "none.npy");
  expect_error(shop.ulp("train --data nowhere"), 3, "nowhere");
  std::filesystem::create_directories(shop / "empty");
  expect_error(shop.ulp("train --data empty"), 3, "empty");
}

}  // namespace
