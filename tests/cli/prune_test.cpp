// ulp prune as a user meets it: both methods, training on, what the other commands make of the result, and bad input.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::Workshop;
using ulp::test::write_file;

class Prune : public WithLeNet5 {
 protected:
  static Outcome prune(const std::string& args) {
    return shop_->ulp("prune m.safetensors --data data --samples 64 --threads 1 --no-latency " + args);
  }
  static json result_of(const std::string& args) {
    const Outcome outcome = prune(args + " --json");
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  }
};

TEST_F(Prune, WeightsBecomeZerosAndStayAsManyAsAsked) {
  const json result = result_of("--sparsity 0.8 --finetune --epochs 2 --batch 16 --out sparse.safetensors");
  const json states = result["states"];
  ASSERT_EQ(states.size(), 3U);
  EXPECT_EQ(states[0]["model"], "dense");
  EXPECT_EQ(states[2]["model"], "trained on");
  double kept = 0, all = 0;
  for (const json& one : result["parameters"]) {
    kept += one["kept"].get<double>();
    all += one["elements"].get<double>();
  }
  EXPECT_EQ(kept, all - std::nearbyint(0.8 * all));
  EXPECT_GT(states[2]["accuracy [%]"].get<double>(), states[0]["accuracy [%]"].get<double>() - 6);
  EXPECT_LT(states[2]["not zero [%]"].get<double>(), 22);
  const Outcome shown = shop_->ulp("inspect sparse.safetensors --json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const json inspected = json::parse(shown.out);
  EXPECT_FALSE(inspected["metadata"].contains("ulp.graph"));
  EXPECT_GT(inspected["tensors"][0]["zeros [%]"].get<double>(), 10);
  // The other commands take the file.
  EXPECT_EQ(shop_->ulp("eval sparse.safetensors --data data").code, 0);
  EXPECT_EQ(shop_->ulp("quantize sparse.safetensors --data data --samples 64 --test 50 --out q.ulp").code, 0);
  EXPECT_EQ(
      shop_
          ->ulp(
              "train --init sparse.safetensors --data data --max-steps 2 --batch 16 --out again.safetensors")
          .code,
      0);
}

TEST_F(Prune, ChannelsAreCutAndTheRestRunsEverywhere) {
  const json result =
      result_of("--method channels --keep macs=0.5 --finetune --epochs 2 --batch 16 --out small.safetensors");
  const json states = result["states"];
  ASSERT_EQ(states.size(), 3U);
  EXPECT_LE(states[2]["MACs [M]"].get<double>(), 0.5001 * states[0]["MACs [M]"].get<double>());
  EXPECT_LT(states[2]["parameters"].get<double>(), states[0]["parameters"].get<double>());
  EXPECT_GT(states[2]["accuracy [%]"].get<double>(), states[0]["accuracy [%]"].get<double>() - 8);
  EXPECT_EQ(shop_->ulp("lower small.safetensors --out small.ulp").code, 0);
  EXPECT_EQ(shop_->ulp("eval small.ulp --data data").code, 0);
  EXPECT_EQ(shop_->ulp("quantize small.safetensors --data data --samples 64 --test 50 --out q.ulp").code, 0);
  // And again from there.
  const Outcome more = shop_->ulp(
      "prune small.safetensors --data data --method channels --keep parameters=0.5 --no-latency --out "
      "less.safetensors");
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(Prune, TrainingPrunesByARecipeAndIsResumed) {
  write_file(*shop_ / "cubic.json", R"({"type": "ulp.prune.Recipe", "version": 1,
    "amount": {"fraction": 0.75, "of": "all"},
    "schedule": {"kind": "cubic", "begin": 2, "end": 14, "frequency": 3}})");
  const std::string train =
      "train --model lenet5 --data data --batch 16 --max-steps 20 --threads 1 --prune cubic.json ";
  ASSERT_EQ(shop_->ulp(train + "--out whole.safetensors").code, 0);
  const std::string parts = train + "--checkpoint c.ckpt --checkpoint-every 7 --out parts.safetensors";
  const Outcome first = shop_->ulp(parts);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(read_file(*shop_ / "whole.safetensors"), read_file(*shop_ / "parts.safetensors"));
  // The checkpoint of the end holds the masks, too.
  std::filesystem::remove(*shop_ / "parts.safetensors");
  ASSERT_EQ(shop_->ulp(parts + " --resume").code, 0);
  EXPECT_EQ(read_file(*shop_ / "whole.safetensors"), read_file(*shop_ / "parts.safetensors"));
  const json shown = json::parse(shop_->ulp("inspect whole.safetensors --json").out);
  double zeros = 0, all = 0;
  for (const json& tensor : shown["tensors"]) {
    if (tensor["name"].get<std::string>().find("weight") == std::string::npos) continue;
    zeros += tensor["zeros [%]"].get<double>() * tensor["size [bytes]"].get<double>();
    all += tensor["size [bytes]"].get<double>();
  }
  EXPECT_NEAR(zeros / all, 75, 0.1);
  write_file(*shop_ / "cut.json", R"({"type": "ulp.prune.ChannelPruningRecipe", "version": 1})");
  expect_error(shop_->ulp("train --data data --prune cut.json"), 3, "one of channels");
}

TEST_F(Prune, TargetIsAnotherNameOfSparsityAndKeep) {
  for (const auto& [now, before] : {std::pair("--sparsity 0.75", "--target sparsity=0.75"),
                                    {"--keep macs=0.6", "--target macs=0.6"},
                                    {"--method channels --keep parameters=0.6", "--target parameters=0.6"}}) {
    ASSERT_EQ(prune(std::string(now) + " --test 0 --out now.safetensors").code, 0) << now;
    ASSERT_EQ(prune(std::string(before) + " --test 0 --out before.safetensors").code, 0) << before;
    EXPECT_EQ(ulp::test::read_file(*shop_ / "now.safetensors"),
              ulp::test::read_file(*shop_ / "before.safetensors"))
        << now;
  }
}

TEST_F(Prune, ASweepNeedsNoFile) {
  const json result = result_of("--sweep 0.5,0.1 --score taylor");
  ASSERT_EQ(result["sweep"].size(), 2U);
  EXPECT_NEAR(result["sweep"][0]["kept [%]"].get<double>(), 50, 0.1);
  EXPECT_NEAR(result["sweep"][1]["kept [%]"].get<double>(), 10, 0.1);
}

TEST_F(Prune, AReportAndARecipeSayWhatWasDone) {
  const Outcome outcome =
      prune("--method channels --keep macs=0.6 --report report --save-recipe r.json --out a.safetensors");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(read_file(*shop_ / "report/report.html").find("What is left of each layer"), std::string::npos);
  const json recipe = json::parse(read_file(*shop_ / "r.json"));
  EXPECT_EQ(recipe["type"], "ulp.prune.ChannelPruningRecipe");
  EXPECT_EQ(recipe["share"], 0.6);
  // The recipe gives the same file.
  ASSERT_EQ(prune("--recipe r.json --out b.safetensors").code, 0);
  EXPECT_EQ(read_file(*shop_ / "a.safetensors"), read_file(*shop_ / "b.safetensors"));
}

TEST_F(Prune, AStructureIsCutAgain) {
  ASSERT_EQ(
      prune("--method channels --keep bytes=0.5 --steps 2 --save-structure s.json --out a.safetensors").code,
      0);
  const json structure = json::parse(read_file(*shop_ / "s.json"));
  EXPECT_EQ(structure["type"], "ulp.prune.Structure");
  ASSERT_EQ(prune("--structure s.json --out b.safetensors").code, 0);
  EXPECT_EQ(read_file(*shop_ / "a.safetensors"), read_file(*shop_ / "b.safetensors"));
  ASSERT_EQ(shop_->ulp("train --model mlp --data data --max-steps 2 --batch 16 --out mlp.safetensors").code,
            0);
  expect_error(shop_->ulp("prune mlp.safetensors --data data --structure s.json --out x.safetensors"), 3,
               "conv1");
  for (const char* goal : {"--keep macs=0.5", "--sparsity 0.5", "--target macs=0.5", "--keep nonsense"})
    expect_error(prune(std::string("--structure s.json --out x.safetensors ") + goal), 2, "no --keep");
  expect_error(prune("--structure s.json --method weights --out x.safetensors"), 2,
               "is for --method channels");
  expect_error(prune("--structure none.json --out x.safetensors"), 3, "none.json");
}

TEST_F(Prune, UnitsAreScoredByWhatTheyDoOnData) {
  for (const char* criterion : {"taylor", "apoz", "activation", "shapley --permutations 1"}) {
    const json states =
        result_of(std::string("--method channels --keep macs=0.7 --out c.safetensors --criterion ") +
                  criterion)["states"];
    EXPECT_LE(states[1]["MACs [M]"].get<double>(), 0.7001 * states[0]["MACs [M]"].get<double>());
  }
}

TEST_F(Prune, APenaltyMakesUnitsSmallBeforeTheyAreCut) {
  const json states = result_of(
      "--method channels --keep macs=0.5 --regularizer group_lasso --lambda 0.01 --finetune "
      "--max-steps 8 "
      "--batch 16 --out p.safetensors")["states"];
  ASSERT_EQ(states.size(), 4U);
  EXPECT_EQ(states[1]["model"], "penalized");
  expect_error(prune("--method channels --lambda 0.01 --out x.safetensors"), 1, "expected training");
}

TEST_F(Prune, NOfMIsDrawnInABetterOrderOfTheChannels) {
  const json result = result_of("--pattern n_m --parameters fc2,fc3 --reorder --out n.safetensors");
  EXPECT_NE(result["notes"].dump().find("reordered"), std::string::npos) << result["notes"];
  expect_error(prune("--reorder --out x.safetensors"), 2, "n_m with reorder");
}

/// Elements of the file's weights that are zero, by its own table.
double zeros_of(const Workshop& shop, const std::string& file) {
  double zeros = 0;
  const json shown = json::parse(shop.ulp("inspect " + file + " --json").out);
  for (const json& tensor : shown["tensors"])
    zeros += tensor["zeros [%]"].get<double>() * tensor["size [bytes]"].get<double>() / 400;
  return zeros;
}

TEST_F(Prune, ZerosStayInTrainingAndInQuantizationAwareTraining) {
  ASSERT_EQ(prune("--sparsity 0.8 --out zeros.safetensors").code, 0);
  const double zeros = zeros_of(*shop_, "zeros.safetensors");
  const std::string train = "train --init zeros.safetensors --data data --max-steps 4 --batch 16 ";
  ASSERT_EQ(shop_->ulp(train + "--keep-zeros --out kept.safetensors").code, 0);
  EXPECT_NEAR(zeros_of(*shop_, "kept.safetensors"), zeros, 1);
  ASSERT_EQ(shop_->ulp(train + "--out lost.safetensors").code, 0);
  EXPECT_LT(zeros_of(*shop_, "lost.safetensors"), zeros / 10);
  const std::string qat =
      "quantize zeros.safetensors --data data --mode qat --max-steps 4 --batch 16 --test 50 --keep-zeros "
      "--out ";
  const Outcome quantized = shop_->ulp(qat + "q.ulp --compare");
  ASSERT_EQ(quantized.code, 0) << quantized.err;
  expect_error(shop_->ulp("quantize zeros.safetensors --data data --mode static --keep-zeros --out x.ulp"), 2,
               "that train");
  expect_error(shop_->ulp("train --data data --keep-zeros"), 2, "--init");
}

TEST_F(Prune, APointOfASweepThatCannotBeReachedIsANote) {
  const json result = result_of("--method channels --sweep 0.6,0.000001");
  EXPECT_EQ(result["sweep"].size(), 1U);
  EXPECT_EQ(result["states"].size(), 1U);
  EXPECT_NE(result["notes"].dump().find("closest"), std::string::npos) << result["notes"];
}

TEST_F(Prune, FewSamplesAreEnough) {
  for (const char* criterion : {"taylor", "hessian"}) {
    const Outcome outcome =
        shop_->ulp(std::string("prune m.safetensors --data data --samples 3 --threads 1 --no-latency "
                               "--method channels --out few.safetensors --criterion ") +
                   criterion);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

TEST_F(Prune, TestSamplesAreAsManyAsAsked) {
  const json few = result_of("--test 10 --out f.safetensors")["states"];
  const double right = few[0]["accuracy [%]"].get<double>() / 10;
  EXPECT_EQ(right, std::nearbyint(right));
}

TEST_F(Prune, ACheckpointIsOfItsRecipeAlone) {
  const std::string run = "--sparsity 0.5 --finetune --max-steps 2 --batch 16 --checkpoint p.ckpt --resume ";
  ASSERT_EQ(prune(run + "--out p.safetensors").code, 0);
  const Outcome again = prune(run + "--out again.safetensors");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("continued from p.ckpt"), std::string::npos);
  EXPECT_EQ(read_file(*shop_ / "p.safetensors"), read_file(*shop_ / "again.safetensors"));
  expect_error(prune(run + "--seed 5 --scope layer --out x.safetensors"), 1, "scope, training.seed");
  const std::string train = "train --model lenet5 --data data --batch 16 --max-steps 2 --threads 1 ";
  ASSERT_EQ(shop_->ulp(train + "--checkpoint t.ckpt").code, 0);
  expect_error(prune("--finetune --checkpoint t.ckpt --resume --out x.safetensors"), 3, "a run that prunes");
  write_file(*shop_ / "bad.ckpt", "nothing of the kind");
  expect_error(prune("--finetune --checkpoint bad.ckpt --resume --out x.safetensors"), 3, "bad.ckpt");
  expect_error(prune("--checkpoint p.ckpt --out x.safetensors"), 2, "--finetune");
  expect_error(prune("--finetune --resume --out x.safetensors"), 2, "--checkpoint FILE");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.safetensors"));
}

TEST_F(Prune, LotteryTicketsGoBackAndTrainAgain) {
  const std::string args =
      "--rewind weights --rewind-step 2 --rounds 2 --sparsity 0.75 --epochs 1 --batch 16 --tickets "
      "rounds "
      "--out ticket.safetensors";
  const json result = result_of(args);
  ASSERT_EQ(result["rounds"].size(), 3U);
  for (int round = 0; round < 3; ++round)
    EXPECT_NEAR(result["rounds"][round]["kept [%]"].get<double>(), 100 * std::pow(0.5, round), 0.1);
  ASSERT_EQ(result["states"].size(), 2U);
  EXPECT_EQ(result["states"][1]["model"], "ticket");
  EXPECT_LT(result["states"][1]["not zero [%]"].get<double>(), 27);
  EXPECT_TRUE(std::filesystem::exists(*shop_ / "rounds/round_2.safetensors"));
  // The rounds are there: a second run reads them and comes to the same bytes.
  const std::string ticket = read_file(*shop_ / "ticket.safetensors");
  result_of(args);
  EXPECT_EQ(read_file(*shop_ / "ticket.safetensors"), ticket);
  const Outcome other = prune(
      "--rewind weights --rewind-step 3 --rounds 2 --sparsity 0.75 --epochs 1 --batch 16 "
      "--tickets rounds --out other.safetensors");
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("got those of another one"), std::string::npos) << other.err;
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "other.safetensors"));
  // Without a folder nothing stays, and each round prunes the recipe's fraction.
  const json again =
      result_of("--rewind lr --rounds 1 --fraction 0.2 --max-steps 3 --batch 16 --out lr.safetensors");
  EXPECT_NEAR(again["rounds"][1]["kept [%]"].get<double>(), 80, 0.1);
  EXPECT_EQ(shop_->ulp("eval ticket.safetensors --data data").code, 0);
}

TEST_F(Prune, LotteryTicketsAreRefusedBesideWhatDoesNotFit) {
  const std::string out = " --out no.safetensors";
  expect_error(prune("--rewind lr --finetune" + out), 2, "expected no --finetune");
  expect_error(prune("--rewind lr --method channels" + out), 2, "is for --method weights");
  expect_error(prune("--rewind lr --rewind-step 4" + out), 2, "goes with --rewind weights");
  expect_error(prune("--rewind lr --test 0" + out), 2, "needs test data");
  expect_error(prune("--rewind lr --checkpoint c.ckpt" + out), 2, "expected no --checkpoint");
  expect_error(prune("--tickets rounds" + out), 2, "goes with --rewind");
  expect_error(prune("--rewind-step 3" + out), 2, "goes with --rewind");
  expect_error(prune("--rewind back" + out), 2, "--rewind");
  const Outcome late = prune("--rewind weights --rewind-step 100000 --batch 16 --epochs 1" + out);
  EXPECT_EQ(late.code, 1);
  EXPECT_NE(late.err.find("expected a step of at most"), std::string::npos) << late.err;
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "no.safetensors"));
}

TEST_F(Prune, BadInputIsOneLine) {
  expect_error(prune(""), 2, "--out");
  expect_error(prune("--out x.safetensors --method weights --keep macs=0.5"), 2,
               "--method weights expected --sparsity SHARE, got --keep macs=0.5");
  expect_error(prune("--out x.safetensors --method channels --sparsity 0.5"), 2,
               "--method channels expected --keep macs=SHARE, got --sparsity 0.5");
  expect_error(prune("--out x.safetensors --target macs=0.5 --method weights"), 2, "got --target macs=0.5");
  for (const char* wrong : {"--sparsity 2", "--sparsity 0", "--sparsity nan", "--sparsity half",
                            "--sparsity 0.5x", "--keep macs=2", "--keep macs", "--keep sparsity=0.5",
                            "--keep latency=", "--target sparsity=2", "--target weights=0.5"})
    expect_error(prune(std::string("--out x.safetensors ") + wrong), 2, "share in (0, 1]");
  for (const char* several : {"--sparsity 0.5 --keep macs=0.5", "--sparsity 0.5 --target sparsity=0.5",
                              "--keep macs=0.5 --target macs=0.5"})
    expect_error(prune(std::string("--out x.safetensors ") + several), 2, "exclude each other");
  expect_error(prune("--out x.safetensors --method channels --score taylor"), 2, "is for --method weights");
  expect_error(prune("--out x.safetensors --skip nothing"), 1, "which matches none");
  expect_error(prune("--out x.safetensors --method channels --skip nothing"), 1, "which matches none");
  expect_error(prune("--out x.safetensors --method channels --keep macs=0.000001"), 1, "closest");
  expect_error(prune("--out x.safetensors --recipe none.json"), 3, "none.json");
  write_file(*shop_ / "bad.json", R"({"type": "ulp.prune.Recipe", "version": 1, "colour": 3})");
  expect_error(prune("--out x.safetensors --recipe bad.json"), 3, "colour");
  expect_error(prune("--out none/x.safetensors"), 1, "none");
  expect_error(shop_->ulp("prune none.safetensors --out x.safetensors"), 3, "none.safetensors");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.safetensors"));
}

}  // namespace
