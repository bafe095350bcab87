// The tool as a user meets it: the main path, wrong use, missing and broken files.
#include "tool.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "ulp/base/safetensors.h"

namespace {

using ulp::test::bytes_of_hex;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::write_file;

/// A trained model and its engines, made once.
class Tool : public WithLeNet5 {
 protected:
  static void SetUpTestSuite() {
    WithLeNet5::SetUpTestSuite();
    ASSERT_EQ(shop_->ulp("lower m.safetensors --out m.ulp").code, 0);
    ASSERT_EQ(shop_->ulp("quantize m.safetensors --data data --samples 64 --out q.ulp").code, 0);
  }
};

TEST_F(Tool, TrainedModelAndItsEnginesAgreeOnAccuracy) {
  std::vector<double> accuracy;
  for (const char* file : {"m.safetensors", "m.ulp", "q.ulp"}) {
    const Outcome outcome = shop_->ulp(std::string("eval ") + file + " --data data --json");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    accuracy.push_back(nlohmann::json::parse(outcome.out)["accuracy_percent"]);
  }
  EXPECT_GT(accuracy[0], 90.0);
  EXPECT_EQ(accuracy[0], accuracy[1]);
  EXPECT_NEAR(accuracy[0], accuracy[2], 3.2);  // two of the 64 images
}

TEST_F(Tool, EveryCommandHasHelpWithExamplesAndJson) {
  for (const char* command : {"demo", "train", "eval", "quantize", "lower", "tokenizer", "generate", "run",
                              "bench", "roofline", "inspect", "devices", "formats"}) {
    const Outcome outcome = shop_->ulp(std::string(command) + " --help");
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Examples:"), std::string::npos) << command;
    EXPECT_NE(outcome.out.find("--json"), std::string::npos) << command;
  }
}

TEST_F(Tool, JsonOutputIsJson) {
  for (const char* args :
       {"devices --json", "formats --json", "formats 0.1 --as bf16 --json", "inspect q.ulp --json",
        "inspect m.safetensors --json", "inspect lenet5 --json", "run q.ulp --random --count 2 --json",
        "bench m.ulp q.ulp --batch 1,2 --rounds 1 --profile --json"}) {
    const Outcome outcome = shop_->ulp(args);
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    EXPECT_FALSE(nlohmann::json::parse(outcome.out, nullptr, false).is_discarded()) << args;
  }
}

TEST_F(Tool, RunTakesTestImagesAndWritesOutputs) {
  const Outcome outcome = shop_->ulp("run q.ulp --data data --count 3 --out y.safetensors --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)[0]["top"].size(), 3u);
  // What it wrote can be read again, but is no input of this engine: the shape is wrong.
  expect_error(shop_->ulp("run q.ulp --input y.safetensors"), 3, "shape");
}

TEST_F(Tool, RunTakesModelsAsItTakesTheirEngines) {
  std::vector<std::string> printed;
  for (const char* args : {"m.ulp", "m.safetensors", "m.safetensors --pieces"}) {
    const Outcome outcome = shop_->ulp(std::string("run ") + args + " --data data --count 3 --json");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    printed.push_back(nlohmann::json::parse(outcome.out)[0]["top"].dump());
  }
  EXPECT_EQ(printed[1], printed[0]);
  EXPECT_EQ(printed[2], printed[0]);
  expect_error(shop_->ulp("run m.ulp --pieces --random"), 1, "a model to run in pieces");
}

TEST_F(Tool, BenchCallsEnginesFromManyThreadsAndModelsInPieces) {
  const Outcome outcome =
      shop_->ulp("bench m.safetensors m.ulp --batch 2 --rounds 1 --contexts 2 --pieces --profile --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto tables = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(tables["Speed"].size(), 3u);
  ASSERT_EQ(tables["Callers"].size(), 2u);
  EXPECT_EQ(tables["Callers"][1]["callers"], 2);
  EXPECT_TRUE(tables.contains("m.safetensors, batch 2, by piece"));
  EXPECT_TRUE(tables.contains("m.ulp, batch 2, by step"));
  expect_error(shop_->ulp("bench m.ulp --contexts 0"), 2, "--contexts");
}

TEST_F(Tool, InspectShowsGraphs) {
  EXPECT_NE(shop_->ulp("inspect m.safetensors --graph").out.find("aten::conv2d"), std::string::npos);
  EXPECT_NE(shop_->ulp("inspect resnet20 --dot").out.find("digraph"), std::string::npos);
}

TEST_F(Tool, WrongUseIsExitCodeTwo) {
  expect_error(shop_->started(""), 2, "subcommand");
  expect_error(shop_->started("train --no-such-flag"), 2, "--no-such-flag");
  expect_error(shop_->started("nonsense"), 2, "nonsense");
  expect_error(shop_->started("train --model resnet2000"), 2, "resnet20");
  expect_error(shop_->started("train --precision fp7"), 2, "bf16");
  expect_error(shop_->started("run q.ulp"), 2, "exactly one");
  expect_error(shop_->started("train --resume"), 2, "--checkpoint");
}

TEST_F(Tool, WrongValuesNameTheField) {
  expect_error(shop_->ulp("train --data data --epochs 0"), 2, "--epochs");
  expect_error(shop_->ulp("train --data data --batch 100000"), 1, "batch");
  expect_error(shop_->ulp("formats 1 --as bf17"), 2, "bf16");
  expect_error(shop_->ulp("eval m.ulp --batch 0"), 2, "expected a whole number in [1, 2147483647], got 0");
  expect_error(shop_->ulp("run m.ulp --random --count 99999999999999999999"), 2, "--count");
  expect_error(shop_->ulp("demo --seed 18446744073709551616"), 2, "a whole number below 2^64");
  expect_error(shop_->ulp("demo --epochs 99999999999999999999"), 2, "[1, 2147483647]");
  expect_error(shop_->ulp("bench amp --networks none"), 2, "none");
  expect_error(shop_->ulp("bench amp --precisions fp7"), 2, "fp7");
  expect_error(shop_->ulp("bench amp --attention-dropout nan"), 2, "in [0, 0.9], got nan");
  for (const char* shape :
       {"1,28", "1x28x", "1,28,0", "-1,28,28", "1,28,28,1", "28", "a,b,c", "1,28,99999999999"})
    expect_error(shop_->ulp(std::string("lower m.pt --out x.ulp --shape=") + shape), 2,
                 "as 3,48,64 or 3x48x64");
  expect_error(shop_->ulp("lower m.pt --out x.ulp --normalize nan,1"), 2, "a finite mean");
  expect_error(shop_->ulp("lower m.safetensors --out none/m.ulp"), 1, "none");
  std::filesystem::create_symlink("none/m.ulp", *shop_ / "nowhere.ulp");
  expect_error(shop_->ulp("lower m.safetensors --out nowhere.ulp"), 1, "the folder 'none' of the output");
  expect_error(shop_->started("devices", "ULP_ISA=mmx"), 1, "portable");
}

TEST_F(Tool, PathsNeedNotBeUtf8) {
  const std::string name = "caf\xe9.ulp";
  std::filesystem::copy(*shop_ / "m.ulp", *shop_ / name);
  const std::vector<std::string> commands = {"eval " + name + " --data data", "inspect " + name,
                                             "lower m.safetensors --out out\xff.ulp",
                                             "bench " + name + " --rounds 1"};
  for (const std::string& command : commands) {
    const Outcome outcome = shop_->ulp(command + " --json");
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    EXPECT_FALSE(nlohmann::json::parse(outcome.out, nullptr, false).is_discarded()) << outcome.out;
  }
}

TEST_F(Tool, NamesFromFilesArePrintedWithTheirControlsEscaped) {
  const float one = 1;
  const std::string name = "w\x1b[31m\nulp: all is well";
  const ulp::TensorEntry entry{name, "F32", {1}, std::as_bytes(std::span(&one, 1))};
  ulp::write_safetensors(*shop_ / "odd.safetensors", {&entry, 1},
                         {{"k\x1b"
                           "ey",
                           "val\x07ue\nsecond line"}});
  const Outcome outcome = shop_->ulp("inspect odd.safetensors");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("w\\x1b[31m\\nulp: all is well"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("k\\x1bey = val\\x07ue\\nsecond line"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);

  std::string cut = read_file(*shop_ / "odd.safetensors");
  const size_t dtype = cut.find("F32");
  cut.replace(dtype, 3, "F64");
  write_file(*shop_ / "odd.safetensors", cut);
  expect_error(shop_->ulp("inspect odd.safetensors"), 3, "'w\\x1b[31m\\nulp: all is well' has 4 bytes");
}

TEST_F(Tool, EightBitFloatsAreNoInputs) {
  const std::vector<std::byte> bytes(28 * 28);
  for (const char* type : {"F8_E4M3", "F8_E5M2"}) {
    const ulp::TensorEntry entry{"input", type, {1, 1, 28, 28}, bytes};
    ulp::write_safetensors(*shop_ / "f8.safetensors", {&entry, 1}, {});
    for (const char* flags : {"", " --allow-nonfinite"})
      expect_error(shop_->ulp(std::string("run m.ulp --input f8.safetensors") + flags), 3, "Float8_e");
  }
}

TEST_F(Tool, AFullDiskFailsWhateverIsPrinted) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  for (const char* args :
       {"--help", "--version", "train --help", "formats", "devices --json", "inspect m.ulp"}) {
    const Outcome outcome = shop_->ulp(std::string(args) + " >/dev/full 2>/dev/null; exit \\$?; true");
    EXPECT_EQ(outcome.code, 1) << args;
  }
  std::filesystem::create_symlink("/dev/full", *shop_ / "full.ulp");
  expect_error(shop_->ulp("lower m.safetensors --out full.ulp"), 1, "full.ulp': No space left on device");
  EXPECT_EQ(shop_->ulp("lower m.safetensors --out /dev/null --json").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Tool, MissingFilesAreExitCodeThree) {
  for (const char* args :
       {"eval none.ulp", "run none.ulp --random", "inspect none.ulp", "lower none.pt --out x.ulp",
        "quantize none.safetensors --out x.ulp", "bench none.ulp"}) {
    expect_error(shop_->ulp(args), 3, "none");
  }
  expect_error(shop_->ulp("eval m.ulp --data nowhere"), 3, "nowhere");
  expect_error(shop_->ulp("quantize m.safetensors --data data --recipe none.json --out x.ulp"), 3,
               "none.json");
}

TEST_F(Tool, TruncatedAndForeignFilesAreExitCodeThree) {
  const std::string engine = read_file(*shop_ / "q.ulp");
  for (size_t size : {size_t{0}, size_t{7}, size_t{100}, engine.size() / 2, engine.size() - 1}) {
    write_file(*shop_ / "cut.ulp", engine.substr(0, size));
    expect_error(shop_->ulp("run cut.ulp --random"), 3, "cut.ulp");
  }
  write_file(*shop_ / "cut.safetensors", read_file(*shop_ / "m.safetensors").substr(0, 5000));
  expect_error(shop_->ulp("eval cut.safetensors --data data"), 3, "cut.safetensors");
  expect_error(shop_->ulp("lower q.ulp --out x.ulp"), 3, "engine file");
  write_file(*shop_ / "bad.pt", std::string("PK\x03\x04") + std::string(100, 'x'));
  expect_error(shop_->ulp("eval bad.pt --data data"), 3, "bad.pt");
  write_file(*shop_ / "bad.json", "{\"type\": 7");
  expect_error(shop_->ulp("quantize m.safetensors --data data --recipe bad.json --out x.ulp"), 3, "JSON");
}

TEST_F(Tool, ATextIsNoModelAndABraceNoRecipe) {
  write_file(*shop_ / "notes.txt", "this is a text and no model\n");
  for (const char* command :
       {"inspect notes.txt", "lower notes.txt --out x.ulp", "eval notes.txt --data data",
        "run notes.txt --random", "bench notes.txt", "memory notes.txt", "generate notes.txt --prompt a"})
    expect_error(shop_->ulp(command), 3, "'notes.txt', which begins as none of them");
  write_file(*shop_ / "brace.json", "{");
  for (const std::string& command : {std::string("quantize m.safetensors --data data --out x.ulp"),
                                     std::string("prune m.safetensors --data data --out x.safetensors")})
    expect_error(shop_->ulp(command + " --recipe brace.json"), 3,
                 "expected a recipe in JSON in 'brace.json', got parse error at line 1, column 2");
}

TEST_F(Tool, AnErrorBudgetIsForEngines) {
  ASSERT_EQ(shop_->ulp("lower m.safetensors --out f.ulp").code, 0);
  const auto accuracy = [&](const std::string& flags) {
    const Outcome outcome = shop_->ulp("eval f.ulp --data data --json" + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["accuracy_percent"].get<double>();
  };
  EXPECT_NEAR(accuracy(" --error-budget 0.01"), accuracy(""), 1.0);
  const Outcome profile = shop_->ulp("bench f.ulp --batch 1 --rounds 1 --profile --error-budget 0.0001");
  EXPECT_EQ(profile.code, 0) << profile.err;
  EXPECT_NE(profile.out.find("left in f32: bf16 would err by 0.2"), std::string::npos) << profile.out;
  expect_error(shop_->ulp("eval m.safetensors --data data --error-budget 0.01"), 3,
               "expected an engine file beside an error budget");
  expect_error(shop_->ulp("run m.safetensors --random --pieces --error-budget 0.01"), 1,
               "got a model in pieces");
  expect_error(shop_->ulp("eval f.ulp --data data --error-budget 2"), 2, "--error-budget");
}

TEST_F(Tool, AShapeThatIsNotUsedIsRefused) {
  ASSERT_EQ(shop_->ulp("export m.safetensors --out m.onnx").code, 0);
  for (const char* command :
       {"lower m.onnx --out x.ulp", "eval m.safetensors --data data", "inspect m.onnx --graph",
        "run m.onnx --random", "export m.onnx --out x.onnx", "memory m.onnx", "eval q.ulp --data data",
        "quantize m.onnx --data data --out x.ulp"})
    expect_error(shop_->ulp(std::string(command) + " --shape 3x48x64"), 1, "expected no --shape beside '");
  expect_error(shop_->ulp("run q.ulp --random --shape 3x48x64"), 1,
               "expected no --shape beside the engine file");
  EXPECT_EQ(shop_->ulp("lower m.onnx --shape 1x28x28 --out x.ulp").code, 0) << "it is what the file has";
}

TEST_F(Tool, SizesOfFreeDimensionsAreSaidByName) {
  // y = Pad(x, 64 behind, reflect) of x [N, T], which needs a T of 65: 64 is the largest unless one says
  // more.
  const std::string digits =
      "08083a580a220a01780a017012017922035061642a120a046d6f646522077265666c656374a001031201672a0d080410"
      "073a04000000404201705a150a017812100a0e0801120a0a0312014e0a0312015462090a017912040a02080142040a00"
      "1011";
  write_file(*shop_ / "pad.onnx", bytes_of_hex(digits));
  expect_error(shop_->ulp("inspect pad.onnx --graph"), 3, "OnnxImportOptions::sizes");
  const Outcome shown = shop_->ulp("inspect pad.onnx --graph --size T=80");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("T + 64"), std::string::npos) << shown.out;
  expect_error(shop_->ulp("inspect pad.onnx --graph --size T=80 --size L=80"), 1,
               "leaves free, 'T', got one of 'L'");
  expect_error(shop_->ulp("inspect pad.onnx --graph --size T"), 2, "--size");
  expect_error(shop_->ulp("inspect pad.onnx --graph --size T=0"), 2, "--size");
  expect_error(shop_->ulp("eval m.safetensors --data data --size T=80"), 1, "expected --size beside an ONNX");
  expect_error(shop_->ulp("run q.ulp --random --size T=80"), 1, "expected --size beside an ONNX");
}

TEST_F(Tool, DamagedDataIsExitCodeThree) {
  shop_->make_data("cut", 32, 16);
  const std::string images = read_file(*shop_ / "cut/t10k-images-idx3-ubyte");
  write_file(*shop_ / "cut/t10k-images-idx3-ubyte", images.substr(0, images.size() / 2));
  expect_error(shop_->ulp("eval m.ulp --data cut"), 3, "t10k-images");
}

TEST_F(Tool, NewerEngineFileSaysSo) {
  std::string engine = read_file(*shop_ / "q.ulp");
  const std::string key = "\"ulp.version\":\"1\"";
  const size_t at = engine.find(key);
  ASSERT_NE(at, std::string::npos);
  engine[at + key.size() - 2] = '9';
  write_file(*shop_ / "newer.ulp", engine);
  expect_error(shop_->ulp("run newer.ulp --random"), 3, "version 9");
}

TEST_F(Tool, FailedWriteLeavesNothing) {
  const Outcome outcome = shop_->started("lower m.safetensors --out limited.ulp", "ulimit -f 4;");
  expect_error(outcome, 1, "limited.ulp");
  for (const auto& entry : std::filesystem::directory_iterator(shop_->folder())) {
    EXPECT_EQ(entry.path().string().find("limited"), std::string::npos) << entry.path();
  }
}

}  // namespace
