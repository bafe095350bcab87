// ulp quantize as a user meets it: every mode, reports, sensitivity, and bad input.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::npy;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::Workshop;
using ulp::test::write_file;

/// The last line is the error; lines of progress may stand before it.
void expect_late_error(const Outcome& outcome, int code, const std::string& says) {
  const size_t line = outcome.err.rfind("ulp: ");
  ASSERT_NE(line, std::string::npos) << outcome.err;
  expect_error({.code = outcome.code, .out = outcome.out, .err = outcome.err.substr(line)}, code, says);
}

class Quantize : public WithLeNet5 {
 protected:
  static Outcome quantize(const std::string& args) {
    return shop_->ulp("quantize m.safetensors --data data --samples 64 " + args);
  }
  static std::string recipe(const std::string& fields, int version = 3) {
    const std::string text =
        R"({"type": "ulp.quant.Recipe", "version": )" + std::to_string(version) + fields + "}";
    write_file(*shop_ / "recipe.json", text);
    return "--recipe recipe.json --out x.ulp";
  }
};

TEST_F(Quantize, EveryModeWritesAnEngineAsGoodAsTheModel) {
  for (const char* mode : {"static", "qat --epochs 2 --batch 16 --threads 1"}) {
    const Outcome outcome = quantize(std::string("--out q.ulp --json --mode ") + mode);
    ASSERT_EQ(outcome.code, 0) << mode << ": " << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_NEAR(result["accuracy_percent"], result["float_accuracy_percent"], 3.2) << mode;
    EXPECT_GT(result["float_accuracy_percent"], 90.0);
    EXPECT_LT(result["weight_bytes"], 0.27 * result["float_weight_bytes"].get<double>());
    EXPECT_EQ(shop_->ulp("eval q.ulp --data data").code, 0);
  }
}

TEST_F(Quantize, DynamicNeedsNoTrainingData) {
  std::filesystem::create_directories(*shop_ / "tested");
  for (const char* file : {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::filesystem::copy(*shop_ / "data" / file, *shop_ / "tested" / file);
  }
  const Outcome outcome = shop_->ulp(
      "quantize m.safetensors --mode dynamic --data tested --compare --out d.ulp --json --report tested");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_NEAR(result["accuracy_percent"], result["float_accuracy_percent"], 3.2);
  EXPECT_LT(result["weight_bytes"], 0.4 * result["float_weight_bytes"].get<double>());
  EXPECT_GT(result["comparison"].back()["SQNR [dB]"], 25.0);
  EXPECT_NE(read_file(*shop_ / "tested/report.html").find("per_tensor"), std::string::npos);
  expect_error(quantize("--mode dynamic --out x.ulp --keep-worst 1"), 2, "--mode dynamic");
  expect_error(quantize("--mode dynamic " + recipe(R"(, "skip_values": ["conv2d"])")), 1,
               "skip_modules alone");
  expect_error(quantize("--mode dynamic " + recipe(R"(, "skip_modules": ["nowhere"])")), 1, "'nowhere'");
  // As recipes were saved before attention was among their ops.
  const Outcome older = quantize(
      "--mode dynamic " + recipe(R"(, "ops": ["conv1d", "conv2d", "conv3d", "linear", "add", "mul"])"));
  EXPECT_EQ(older.code, 0) << older.err;
}

TEST_F(Quantize, WeightOnlyKeepsFourBitsOrEight) {
  int64_t bytes = 0;
  for (
      const std::string scheme :
      {R"({"bits": 4, "signed": true, "mapping": "symmetric", "range": "restricted", "granularity": {"per_group": 32}})",
       R"({"bits": 8, "signed": true, "mapping": "symmetric", "range": "restricted", "granularity": {"per_channel": 0}})"}) {
    const Outcome outcome =
        quantize("--mode weight-only --json " +
                 recipe(R"(, "backend": "weight_only", "weight": {"scheme": )" + scheme + "}"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_NEAR(result["accuracy_percent"], result["float_accuracy_percent"], 3.2);
    EXPECT_GT(result["weight_bytes"], bytes);
    bytes = result["weight_bytes"];
    EXPECT_LT(bytes, result["float_weight_bytes"]);
  }
  EXPECT_EQ(shop_->ulp("eval x.ulp --data data").code, 0);
  expect_error(quantize("--mode weight-only --recipe x86_int8 --out x.ulp"), 1, "got one of x86_int8");
  expect_error(quantize("--mode static --recipe weight_only --out x.ulp"), 1, "activations in float");
  const Outcome profile = quantize("--recipe weight_only --json --out x.ulp");
  ASSERT_EQ(profile.code, 0) << profile.err;
  EXPECT_EQ(json::parse(profile.out)["mode"], "weight-only");
}

TEST_F(Quantize, ReportIsWrittenAsJsonAndPage) {
  std::filesystem::create_directories(*shop_ / "out");
  const Outcome outcome = quantize("--out q.ulp --compare --sensitivity --report out");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Each layer quantized alone"), std::string::npos) << outcome.out;
  const json report = json::parse(read_file(*shop_ / "out/report.json"));
  EXPECT_EQ(report["charts"].size(), 2u);
  EXPECT_NE(read_file(*shop_ / "out/report.html").find("Float against quantized activations"),
            std::string::npos);
}

TEST_F(Quantize, SensitivityNeedsNoOutputAndKeepWorstUsesIt) {
  const Outcome alone = quantize("--sensitivity --json");
  ASSERT_EQ(alone.code, 0) << alone.err;
  const json rows = json::parse(alone.out)["sensitivity"];
  ASSERT_EQ(rows.size(), 5u);
  const Outcome outcome = quantize("--keep-worst 2 --save-recipe kept.json --out q.ulp");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json recipe = json::parse(read_file(*shop_ / "kept.json"));
  EXPECT_EQ(recipe["skip_values"], (json{rows[0]["value"], rows[1]["value"]}));
  EXPECT_EQ(quantize("--recipe kept.json --out q2.ulp").code, 0);
}

TEST_F(Quantize, MaxDropLeavesLayersInFloatUntilTheEngineIsGoodEnough) {
  // Most layers do not survive weights of 2 bits.
  const std::string two_bits = recipe(R"(, "weight": {"scheme": {"bits": 2}})");
  const auto run = [&](const std::string& flags) {
    const Outcome outcome = quantize(two_bits + " --json -v --save-recipe kept.json " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::pair(json::parse(outcome.out), outcome.err);
  };
  const auto kept = [] { return json::parse(read_file(*shop_ / "kept.json"))["skip_values"].size(); };
  const auto [free, free_notes] = run("--max-drop 100");
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(free_notes.find("stays in float"), std::string::npos);
  const auto [strict, notes] = run("--max-drop 0.5");
  EXPECT_GE(kept(), 1u);
  EXPECT_GE(strict["accuracy_percent"], strict["float_accuracy_percent"].get<double>() - 0.5);
  EXPECT_NE(notes.find("stays in float, for at most 0.5 points less"), std::string::npos) << notes;
  expect_late_error(quantize(two_bits + " --max-drop 0.5 --keep-worst 1000"), 1, "at least one op");
  expect_error(quantize("--out q.ulp --max-drop nan"), 2, "--max-drop");
  expect_error(quantize("--mode qat --max-drop 1 --out q.ulp"), 2, "--max-drop");
  expect_error(quantize("--test 0 --max-drop 1 --out q.ulp"), 2, "--max-drop");
}

TEST_F(Quantize, ProfilesByName) {
  for (const char* profile : {"x86_int8", "arm_int8", "tflite_int8", "onnx_qdq"}) {
    const Outcome outcome = quantize(std::string("--out q.ulp --json --recipe ") + profile);
    ASSERT_EQ(outcome.code, 0) << profile << ": " << outcome.err;
    EXPECT_GT(json::parse(outcome.out)["accuracy_percent"], 85.0) << profile;
  }
}

TEST_F(Quantize, TensorFlowLiteFilesAreWrittenByTheirOwnRecipe) {
  Outcome outcome = quantize("--out q.tflite --integer-io --save-recipe used.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(read_file(*shop_ / "used.json"))["backend"], "tflite_int8");
  EXPECT_NE(outcome.out.find("wrote q.tflite"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("VNNI"), std::string::npos) << outcome.out;
  EXPECT_EQ(read_file(*shop_ / "q.tflite").substr(4, 4), "TFL3");
  const std::string listed = shop_->ulp("inspect q.tflite").out;
  EXPECT_NE(listed.find("int8"), std::string::npos) << listed;
  EXPECT_EQ(listed.find("QUANTIZE"), std::string::npos) << "codes come and go: " << listed;
  outcome = quantize("--out q.tflite --mode qat --max-steps 3 --batch 16 --threads 1 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* mode : {"dynamic", "weight-only"})
    expect_error(quantize(std::string("--out q.tflite --mode ") + mode), 2, "holds static int8");
  expect_error(quantize("--out q.ulp --integer-io"), 2, "--integer-io is for TensorFlow Lite files");
}

TEST_F(Quantize, BinaryNetworksTrainAndBecomeEngines) {
  const Outcome outcome = quantize(
      "--recipe binary --threads 1 --batch 16 --epochs 4 --optimizer adam --lr 0.002 --binary-scale output "
      "--out b.ulp --save-recipe b.json --report binary --json -v");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["mode"], "qat");
  EXPECT_GT(result["accuracy_percent"], 80.0);
  EXPECT_LT(result["weight_bytes"], 0.1 * result["float_weight_bytes"].get<double>());
  for (const char* line : {"conv2 made binary", "fc1 made binary", "fc2 made binary",
                           "note: conv1 not made binary: it is the first layer"})
    EXPECT_NE(outcome.err.find(line), std::string::npos) << line << '\n' << outcome.err;
  EXPECT_EQ(json::parse(read_file(*shop_ / "b.json"))["binary"]["scale"], "output");
  const std::string page = read_file(*shop_ / "binary/report.html");
  EXPECT_NE(page.find("fc1 made binary"), std::string::npos);
  EXPECT_NE(page.find("activation_scale"), std::string::npos) << "the settings name the recipe's fields";
  EXPECT_EQ(outcome.err.find("(aten::abs) not quantized"), std::string::npos) << outcome.err;
  const Outcome tried = shop_->ulp("eval b.ulp --data data --json");
  ASSERT_EQ(tried.code, 0) << tried.err;
  EXPECT_EQ(json::parse(tried.out)["accuracy_percent"], result["accuracy_percent"]);
  const Outcome steps = shop_->ulp("inspect b.ulp");
  EXPECT_NE(steps.out.find("binary_linear"), std::string::npos) << steps.out;
  expect_error(quantize("--recipe binary --mode static --out x.ulp"), 1, "binary networks are trained");
  expect_error(quantize("--mode qat --binary-scale full --out x.ulp"), 2, "backend binary");
}

TEST_F(Quantize, TheTypeOfARecipeChoosesTheMode) {
  write_file(
      *shop_ / "dynamic.json",
      R"({"type": "ulp.quant.DynamicRecipe", "version": 1, "per_tensor": true, "skip_modules": ["fc2"]})");
  write_file(
      *shop_ / "small.json",
      R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 3, "bits": 4, "group": 16, "affine": true})");
  write_file(*shop_ / "qat.json", R"({"type": "ulp.quant.QatRecipe", "version": 2, "learned": "scale",
      "training": {"batch": 16, "max_steps": 4, "seed": 3}})");
  for (const auto& [file, mode] :
       {std::pair{"dynamic", "dynamic"}, std::pair{"small", "weight-only"}, std::pair{"qat", "qat"}}) {
    const Outcome outcome = quantize("--threads 1 --json --out t.ulp --save-recipe used.json --recipe " +
                                     std::string(file) + ".json");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["mode"], mode);
    // Saved is the whole: what the file said, and the defaults.
    json expected = json::parse(read_file(*shop_ / "used.json"));
    expected.merge_patch(json::parse(read_file(*shop_ / (std::string(file) + ".json"))));
    EXPECT_EQ(json::parse(read_file(*shop_ / "used.json")), expected);
    const Outcome again = quantize("--threads 1 --out again.ulp --recipe used.json");
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(read_file(*shop_ / "again.ulp"), read_file(*shop_ / "t.ulp")) << mode;
  }
  expect_error(quantize("--mode static --recipe dynamic.json --out x.ulp"), 1, "which is for mode dynamic");
}

TEST_F(Quantize, FlagsGoOverTheRecipe) {
  const auto used = [&](const std::string& flags) {
    const Outcome outcome = quantize("--threads 1 --out t.ulp --save-recipe used.json " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(read_file(*shop_ / "used.json"));
  };
  EXPECT_EQ(used("--mode dynamic --per-tensor --ops linear")["per_tensor"], true);
  write_file(*shop_ / "small.json", R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 1, "group": 16})");
  const json small = used("--recipe small.json --affine --no-embeddings --skip-modules fc1,fc2");
  EXPECT_EQ(small["group"], 16);
  EXPECT_EQ(small["affine"], true);
  EXPECT_EQ(small["embeddings"], false);
  EXPECT_EQ(small["skip_modules"], (json{"fc1", "fc2"}));
  EXPECT_EQ(used("--backend onnx_qdq --skip-values conv2d")["backend"], "onnx_qdq");
  const json qat =
      used("--mode qat --batch 16 --max-steps 4 --lr 0.02 --freeze-observers 0.5 --skip-modules fc2");
  EXPECT_EQ(qat["training"]["learning_rate"], 0.02);
  EXPECT_EQ(qat["freeze_observers_after"], 0.5);
  EXPECT_EQ(qat["tensors"]["skip_modules"], json{"fc2"});
  expect_error(quantize("--per-tensor --out x.ulp"), 2,
               "--per-tensor: is for --mode dynamic, got --mode static");
  expect_error(quantize("--mode qat --freeze-observers 2 --out x.ulp"), 2, "in [0, 1]");
  expect_error(quantize("--mode qat --learned all --out x.ulp"), 2, "scale_and_zero_point");
}

TEST_F(Quantize, WrongUseIsExitCodeTwo) {
  expect_error(quantize(""), 2, "--out");
  expect_error(quantize("--out q.ulp --mode magic"), 2, "qat");
  expect_error(quantize("--compare"), 2, "--out");
  expect_error(quantize("--sensitivity --test 0"), 2, "--test 0");
  expect_error(quantize("--out q.ulp --samples 0"), 2, "--samples");
  expect_error(quantize("--out q.ulp --mode qat --seed -1"), 2,
               "--seed: expected a whole number >= 0, got -1");
  expect_error(quantize("--out q.ulp --mode qat --max-steps 99999999999999999999"), 2, "--max-steps");
}

TEST_F(Quantize, BadRecipesNameTheFieldOrLayer) {
  expect_error(quantize(recipe(R"(, "weights": {})")), 3, "'weights'");
  expect_error(quantize(recipe(R"(, "skip_modules": ["layer9"])")), 1, "'layer9'");
  expect_error(quantize(recipe("", 99)), 3, "version 1 to 5, got 99");
  expect_error(quantize(recipe(R"(, "weight": {"scheme": {"granularity": {"per_channel": 7}}})")), 3,
               "weight per tensor or per channel 0, got per channel 7");
  expect_error(quantize(recipe(R"(, "backend": "arm_int8", "weight": {"scheme": {"range": "full"}})")), 1,
               "arm_int8 takes weights in [-127, 127]");
  expect_late_error(quantize(recipe(R"(, "activation": {"scheme": {"bits": 7}})")), 1,
                    "'input_q': expected codes [0, 255]");
}

TEST_F(Quantize, ArraysOfBytesAreImages) {
  const auto images = read_file(*shop_ / "data/train-images-idx3-ubyte").substr(16);
  write_file(*shop_ / "x.npy", npy("|u1", "256, 28, 28", images));
  write_file(*shop_ / "y.npy",
             npy("|u1", "256,", read_file(*shop_ / "data/train-labels-idx1-ubyte").substr(8)));
  const Outcome outcome =
      shop_->ulp("quantize m.safetensors --data x.npy,y.npy --samples 64 --out a.ulp --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(json::parse(outcome.out)["accuracy_percent"], 90.0);
  expect_error(shop_->ulp("quantize m.safetensors --data nowhere.npz --out a.ulp"), 3, "'nowhere.npz'");
}

TEST(QuantizeRows, EveryModeTakesRowsOfArraysAlsoOfAnOnnxFile) {
  const Workshop shop;
  shop.make_rows();
  ASSERT_EQ(shop.ulp("train --data x.npy,y.npy --epochs 20 --batch 16 --threads 1 --out m.safetensors").code,
            0);
  ASSERT_EQ(shop.ulp("export m.safetensors --to onnx --out m.onnx").code, 0);
  for (const std::string model : {"m.safetensors", "m.onnx"}) {
    for (const std::string mode :
         {"static --compare --sensitivity", "qat --max-steps 5 --batch 16", "dynamic", "weight-only"}) {
      const Outcome outcome =
          shop.ulp("quantize " + model + " --data x.npy,y.npy --json --out q.ulp --mode " + mode);
      ASSERT_EQ(outcome.code, 0) << model << ' ' << mode << ": " << outcome.err;
      EXPECT_GT(json::parse(outcome.out)["accuracy_percent"], 90.0) << model << ' ' << mode;
      EXPECT_EQ(shop.ulp("eval q.ulp --data x.npy,y.npy").code, 0) << model << ' ' << mode;
      EXPECT_EQ(shop.ulp("run q.ulp --data x.npy,y.npy --count 20").code, 0) << model << ' ' << mode;
    }
  }
}

TEST(QuantizeRows, WithoutDataTheTrialIsLeftOut) {
  const Workshop shop;
  shop.make_rows();
  ASSERT_EQ(
      shop.ulp("train --data x.npy,y.npy --max-steps 5 --batch 16 --threads 1 --out m.safetensors").code, 0);
  for (const std::string mode : {"dynamic", "weight-only"}) {
    const Outcome outcome = shop.ulp("quantize m.safetensors --json --out q.ulp --mode " + mode);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(json::parse(outcome.out).contains("accuracy_percent"));
    EXPECT_NE(outcome.err.find("note: accuracies are not compared"), std::string::npos) << outcome.err;
    EXPECT_EQ(shop.ulp("quantize m.safetensors --data x.npy --out q.ulp --mode " + mode).code, 3)
        << "data that is named has to be there";
  }
  EXPECT_NE(shop.ulp("quantize m.safetensors --mode dynamic --compare --out q.ulp").code, 0)
      << "it needs samples";
  // Samples alone calibrate: labels are for the trial.
  const Outcome unlabelled = shop.ulp("quantize m.safetensors --data x.npy --test 0 --out q.ulp");
  EXPECT_EQ(unlabelled.code, 0) << unlabelled.err;
}

TEST_F(Quantize, BadDataIsRefused) {
  std::filesystem::create_directories(*shop_ / "none");
  expect_error(shop_->ulp("quantize m.safetensors --data none --out x.ulp"), 3, "train-images");
  std::filesystem::create_directories(*shop_ / "small");
  const auto number = [](char value) { return std::string("\0\0\0", 3) + value; };
  const std::string images =
      std::string("\0\0\x08\x03", 4) + number(2) + number(14) + number(14) + std::string(2 * 14 * 14, 'x');
  const std::string labels = std::string("\0\0\x08\x01", 4) + number(2) + std::string(2, '\1');
  for (const char* split : {"train", "t10k"}) {
    write_file(*shop_ / ("small/" + std::string(split) + "-images-idx3-ubyte"), images);
    write_file(*shop_ / ("small/" + std::string(split) + "-labels-idx1-ubyte"), labels);
  }
  expect_error(shop_->ulp("quantize m.safetensors --data small --out x.ulp"), 1,
               "expected images of 1x28x28 for lenet5, got 1x14x14");
  write_file(*shop_ / "scripted.pt", "");
  expect_error(shop_->ulp("quantize scripted.pt --data data --out x.ulp"), 3, "scripted.pt");
  expect_error(quantize("--mode qat --threads 1 --batch 100000 --out x.ulp"), 1, "batch");
  expect_late_error(quantize("--mode qat --threads 1 --lr 1e30 --batch 16 --epochs 4 --out x.ulp"), 1,
                    "'conv1.weight'");
}

TEST_F(Quantize, EngineCutShortIsRefused) {
  ASSERT_EQ(quantize("--out whole.ulp").code, 0);
  const std::string engine = read_file(*shop_ / "whole.ulp");
  for (const size_t size : {size_t{8}, engine.size() / 3, engine.size() - 1}) {
    write_file(*shop_ / "cut.ulp", engine.substr(0, size));
    expect_error(shop_->ulp("eval cut.ulp --data data"), 3, "cut.ulp");
  }
}

TEST_F(Quantize, CtrlCWhileTrainingIsExitCode130AndLeavesNothing) {
  const pid_t process = shop_->start(
      "quantize m.safetensors --data data --mode qat --threads 1 --batch 16 --max-steps 100000000 --out "
      "late.ulp");
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ::kill(process, SIGINT);
  EXPECT_EQ(Workshop::wait(process), 130);
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "late.ulp"));
}

}  // namespace
