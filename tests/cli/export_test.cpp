// ulp export as a user meets it: a file for other runtimes, and wrong use.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "tool.h"

namespace {

using ulp::test::bytes_of_hex;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;

class Export : public ulp::test::WithLeNet5 {};

TEST_F(Export, WritesTheSameFileEachTime) {
  const Outcome first = shop_->ulp("export m.safetensors --to onnx --out m.onnx --json");
  ASSERT_EQ(first.code, 0) << first.err;
  const auto json = nlohmann::json::parse(first.out);
  EXPECT_EQ(json["opset"], 21);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(*shop_ / "m.onnx"));
  ASSERT_EQ(shop_->ulp("export m.safetensors --out again.onnx").code, 0);
  EXPECT_EQ(read_file(*shop_ / "m.onnx"), read_file(*shop_ / "again.onnx"));
  EXPECT_NE(read_file(*shop_ / "m.onnx").find("conv1.weight"), std::string::npos);
  const Outcome older = shop_->ulp("export m.safetensors --out old.onnx --opset 17 --json");
  ASSERT_EQ(older.code, 0) << older.err;
  EXPECT_EQ(nlohmann::json::parse(older.out)["opset"], 17);
}

TEST_F(Export, QuantizeWritesIntegersForOtherRuntimes) {
  const Outcome made =
      shop_->ulp("quantize m.safetensors --data data --samples 64 --test 50 --threads 1 --out q.onnx");
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string file = read_file(*shop_ / "q.onnx");
  EXPECT_NE(file.find("QuantizeLinear"), std::string::npos);
  EXPECT_LT(file.size(), std::filesystem::file_size(*shop_ / "m.safetensors") / 3);
  const std::string note = "session.x64quantprecision = \"1\"";
  EXPECT_NE(made.out.find(note), std::string::npos) << made.out;
  // Weights of 7 bits cannot saturate.
  write_file(*shop_ / "seven.json", R"({"type": "ulp.quant.Recipe", "version": 3, "backend": "onnx_qdq",
                                        "weight": {"scheme": {"bits": 7}}})");
  const Outcome seven = shop_->ulp(
      "quantize m.safetensors --data data --samples 64 --test 0 --recipe seven.json --out q7.onnx");
  ASSERT_EQ(seven.code, 0) << seven.err;
  EXPECT_EQ(seven.out.find(note), std::string::npos) << seven.out;
}

TEST_F(Export, QuantizeWritesTheModesThatNeedNoData) {
  for (const char* mode : {"dynamic", "weight-only --weight-bits 4"}) {
    const Outcome made = shop_->ulp(
        std::string("quantize m.safetensors --data data --test 50 --threads 1 --out w.onnx --mode ") + mode);
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_LT(std::filesystem::file_size(*shop_ / "w.onnx"),
              std::filesystem::file_size(*shop_ / "m.safetensors") / 2)
        << mode;
  }
  // What no such file can hold is said before anything is made.
  expect_error(shop_->ulp("quantize m.safetensors --data data --recipe binary --out x.onnx"), 2, "binary");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.onnx"));
}

TEST_F(Export, WeightsGoBesideTheModelAndIntoHalves) {
  const Outcome two = shop_->ulp("export m.safetensors --external-data --out two.onnx");
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_GT(std::filesystem::file_size(*shop_ / "two.onnx.data"),
            std::filesystem::file_size(*shop_ / "two.onnx"));
  const Outcome again = shop_->ulp("inspect two.onnx --json");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("conv1.weight"), std::string::npos);
  const Outcome half = shop_->ulp("export m.safetensors --fp16 --out half.onnx");
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_LT(std::filesystem::file_size(*shop_ / "half.onnx"),
            0.6 * static_cast<double>(std::filesystem::file_size(*shop_ / "m.safetensors")));
}

TEST_F(Export, TakesArchivesOfTorchExport) {
  const std::filesystem::path archive = std::filesystem::path(ULP_SOURCE_DIR) / "tests/golden/pt2/texts.pt2";
  const Outcome made = shop_->ulp("export " + archive.string() + " --out t.onnx");
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome inspected = shop_->ulp("inspect " + archive.string());
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("torch.export archive"), std::string::npos) << inspected.out;
  EXPECT_NE(inspected.out.find("words.weight"), std::string::npos);
  std::filesystem::copy_file(archive, *shop_ / "renamed.bin");
  EXPECT_EQ(shop_->ulp("export renamed.bin --out r.onnx").code, 0);
}

TEST_F(Export, SaysWhichSizesOfImagesItFixes) {
  // y = Relu(x) of x [batch, 2, H, 10].
  const std::string digits =
      "080812003a570a0c0a0178120179220452656c751201675a210a0178121c0a1a080112160a07120562617463680a0208020a"
      "031201480a02080a62210a0179121c0a1a080112160a07120562617463680a0208020a031201480a02080a42040a001011";
  write_file(*shop_ / "images.onnx", bytes_of_hex(digits));
  const std::string line = "'H' of input 'x' is fixed at ";
  const Outcome usual = shop_->ulp("export images.onnx --out fixed.onnx");
  ASSERT_EQ(usual.code, 0) << usual.err;
  EXPECT_NE(usual.out.find(line + "28: the model leaves it free"), std::string::npos) << usual.out;
  const Outcome asked = shop_->ulp("export images.onnx --shape 2,40,10 --out fixed.onnx --json");
  ASSERT_EQ(asked.code, 0) << asked.err;
  const nlohmann::json right = {{{"input", "x"}, {"dimension", "H"}, {"size", 40}}};
  EXPECT_EQ(nlohmann::json::parse(asked.out)["fixed"], right);
  const Outcome free = shop_->ulp("export images.onnx --size H=64 --out free.onnx");
  ASSERT_EQ(free.code, 0) << free.err;
  EXPECT_EQ(free.out.find(line), std::string::npos) << free.out;
  EXPECT_EQ(shop_->ulp("export images.onnx --size H=16:64 --out free.onnx").code, 0);
  expect_error(shop_->ulp("export images.onnx --size H=64:16 --out free.onnx"), 2, "below the largest");
  expect_error(shop_->ulp("export images.onnx --size H=16: --out free.onnx"), 2, "as time=16:512");
  const Outcome own = shop_->ulp("export m.safetensors --out m.onnx");
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(own.out.find("is fixed at"), std::string::npos) << own.out;
}

TEST_F(Export, WritesCoreMlPackages) {
  const Outcome made = shop_->ulp("export m.safetensors --to coreml --int8-weights --out m.mlpackage --json");
  ASSERT_EQ(made.code, 0) << made.err;
  const auto json = nlohmann::json::parse(made.out);
  EXPECT_EQ(json["batch"], 1);
  const std::filesystem::path data = *shop_ / "m.mlpackage/Data/com.apple.CoreML";
  EXPECT_GT(json["bytes"], std::filesystem::file_size(data / "model.mlmodel"));
  EXPECT_LT(std::filesystem::file_size(data / "weights/weight.bin"),
            0.3 * static_cast<double>(std::filesystem::file_size(*shop_ / "m.safetensors")));
  EXPECT_EQ(shop_->ulp("export m.safetensors --to coreml --batch 2 --fp16 --out m.mlpackage").code, 0);
  expect_error(shop_->ulp("export m.safetensors --to coreml --opset 17 --out n.mlpackage"), 2, "--to onnx");
  expect_error(shop_->ulp("export m.safetensors --batch 2 --out n.onnx"), 2, "--to coreml");
  expect_error(shop_->ulp("export m.safetensors --to coreml --out n.onnx"), 2,
               "writes .mlpackage, got a name that ends in .onnx");
  expect_error(shop_->started("export m.safetensors --to coreml --out c.mlpackage --check",
                              "ULP_PYTHON=/nowhere/python3 "),
               1, "pip install coremltools");
}

TEST_F(Export, WritesWeightsUnderPublishedNamesAndGguf) {
  ASSERT_EQ(shop_->ulp("export m.safetensors --to safetensors --out weights.safetensors").code, 0);
  // They are lenet5's again where it is named.
  const Outcome again =
      shop_->ulp("export weights.safetensors --network lenet5 --shape 1,28,28 --out w.onnx");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(read_file(*shop_ / "w.onnx").find("conv1.weight"), std::string::npos);
  expect_error(shop_->ulp("export m.safetensors --to gguf --out m.gguf"), 1, "scaled_dot_product_attention");
  expect_error(shop_->ulp("export m.safetensors --to safetensors --out x.safetensors --check"), 2, "--check");
  expect_error(shop_->ulp("export m.safetensors --to gguf --gguf-type q4 --out x.gguf"), 2, "q4_0");
  std::string book;
  for (int i = 0; i < 40; ++i) book += "to be or not to be, that is the question\n";
  write_file(*shop_ / "book.txt", book);
  const std::string train =
      "train --data book.txt --model gpt2 --length 16 --batch 4 --max-steps 1 --threads 1";
  ASSERT_EQ(shop_->ulp(train + " --out g.safetensors").code, 0);
  const Outcome gguf = shop_->ulp("export g.safetensors --to gguf --gguf-type q4_0 --out g.gguf --json");
  ASSERT_EQ(gguf.code, 0) << gguf.err;
  EXPECT_EQ(nlohmann::json::parse(gguf.out)["type"], "q4_0");
  const std::string bytes = read_file(*shop_ / "g.gguf");
  EXPECT_TRUE(bytes.starts_with("GGUF"));
  EXPECT_NE(bytes.find("gpt2.attention.head_count"), std::string::npos);
  // It comes back with its codes.
  EXPECT_NE(shop_->ulp("inspect g.gguf").out.find("Q4_0"), std::string::npos);
  const Outcome engine = shop_->ulp("lower g.gguf --out g.ulp");
  ASSERT_EQ(engine.code, 0) << engine.err;
  EXPECT_LT(std::filesystem::file_size(*shop_ / "g.ulp"),
            0.4 * static_cast<double>(std::filesystem::file_size(*shop_ / "g.safetensors")));
  write_file(*shop_ / "half.gguf", bytes.substr(0, bytes.size() / 2));
  expect_error(shop_->ulp("lower half.gguf --out h.ulp"), 3, "half.gguf");
}

TEST_F(Export, WritesTensorFlowLiteFiles) {
  const Outcome outcome = shop_->ulp("export m.safetensors --to tflite --batch 0 --out m.tflite");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("batch free"), std::string::npos) << outcome.out;
  EXPECT_EQ(read_file(*shop_ / "m.tflite").substr(4, 4), "TFL3");
  expect_error(shop_->started("export m.safetensors --to tflite --out c.tflite --check",
                              "ULP_PYTHON=/nowhere/python3 "),
               1, "pip install ai-edge-litert");
}

TEST_F(Export, WritesArchivesOfTorchExport) {
  const Outcome made = shop_->ulp("export m.safetensors --to pt2 --out m.pt2 --json");
  ASSERT_EQ(made.code, 0) << made.err;
  const auto json = nlohmann::json::parse(made.out);
  EXPECT_EQ(json["schema"], "8.20");
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(*shop_ / "m.pt2"));
  // It is a model of the tool again, and so are codes.
  const Outcome inspected = shop_->ulp("inspect m.pt2");
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("conv1.weight"), std::string::npos);
  ASSERT_EQ(shop_->ulp("quantize m.safetensors --data data --samples 32 --test 0 --out q.onnx").code, 0);
  const Outcome codes = shop_->ulp("export q.onnx --to pt2 --out q.pt2");
  ASSERT_EQ(codes.code, 0) << codes.err;
  EXPECT_NE(read_file(*shop_ / "q.pt2").find("torch.ops.aten.round.default"), std::string::npos);
  expect_error(shop_->ulp("export m.safetensors --to pt2 --fp16 --out h.pt2"), 2, "--to onnx or coreml");
  expect_error(shop_->ulp("export m.safetensors --to pt2 --out m.onnx"), 2, "writes .pt2");
  expect_error(
      shop_->started("export m.safetensors --to pt2 --out c.pt2 --check", "ULP_PYTHON=/nowhere/python3 "), 1,
      "pip install torch==2.13.0");
}

TEST_F(Export, ACheckWithoutTheRuntimeSaysWhatToInstall) {
  const Outcome outcome =
      shop_->started("export m.safetensors --out c.onnx --check", "ULP_PYTHON=/nowhere/python3 ");
  expect_error(outcome, 1, "pip install onnxruntime");
}

TEST_F(Export, ACheckFailsBeyondTheToleranceOfThePrecision) {
  const auto exported = [&](const std::string& largest, const std::string& flags) {
    write_file(*shop_ / "says.sh",
               "#!/bin/sh\necho '{\"results\": [{\"runtime\": \"Judge 1\", \"largest\": " + largest +
                   "}], \"missing\": []}'\n");
    std::filesystem::permissions(*shop_ / "says.sh", std::filesystem::perms::owner_all);
    return shop_->started("export " + flags + " --check", "ULP_PYTHON=./says.sh ");
  };
  ASSERT_EQ(shop_->ulp("quantize m.safetensors --data data --samples 32 --test 0 --out codes.onnx").code, 0);
  const std::string half = "m.safetensors --fp16 --out h.onnx", codes = "codes.onnx --out c.onnx";
  EXPECT_EQ(exported("9e-6", "m.safetensors --out f.onnx").code, 0);
  EXPECT_EQ(exported("4e-3", half).code, 0);
  EXPECT_EQ(exported("4e-2", codes).code, 0);
  for (const auto& [largest, flags, of] : {std::tuple<std::string, std::string, std::string>{
                                               "2e-5", "m.safetensors --out f.onnx", "a model in fp32"},
                                           {"null", "m.safetensors --out f.onnx", "a model in fp32"},
                                           {"6e-3", half, "a model in fp16"},
                                           {"6e-2", codes, "a model whose activations are codes"}}) {
    const Outcome outcome = exported(largest, flags);
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_NE(outcome.err.find("expected Judge 1 to differ by at most"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(of), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.out.find("largest difference"), std::string::npos)
        << "the figures are shown: " << outcome.out;
  }
}

TEST_F(Export, ACheckThatIsInterruptedLeavesNoFolder) {
  std::filesystem::create_directories(*shop_ / "temporary");
  write_file(*shop_ / "judge.sh", "#!/bin/sh\ntouch started\nsleep 1\n");
  std::filesystem::permissions(*shop_ / "judge.sh", std::filesystem::perms::owner_all);
  const pid_t process =
      shop_->start("export m.safetensors --out i.onnx --check", "TMPDIR=temporary ULP_PYTHON=./judge.sh ");
  for (int i = 0; i < 3000 && !std::filesystem::exists(*shop_ / "started"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_FALSE(std::filesystem::is_empty(*shop_ / "temporary"));
  ::kill(process, SIGINT);
  EXPECT_EQ(Workshop::wait(process), 130);
  EXPECT_TRUE(std::filesystem::is_empty(*shop_ / "temporary"));
  EXPECT_TRUE(std::filesystem::exists(*shop_ / "i.onnx"));
}

TEST_F(Export, BadInputIsOneLine) {
  expect_error(shop_->ulp("export m.safetensors"), 2, "--out");
  expect_error(shop_->ulp("export m.safetensors --to lite --out x.onnx"), 2, "onnx");
  expect_error(shop_->ulp("export m.safetensors --to tflite --opset 17 --out x.onnx"), 2, "--to onnx");
  expect_error(shop_->ulp("export m.safetensors --batch 0 --to coreml --out x.mlpackage"), 2, "--to tflite");
  expect_error(shop_->ulp("export m.safetensors --opset 9 --out x.onnx"), 2, "17");
  expect_error(shop_->ulp("export m.safetensors --to tflite --integer-io --out x.tflite"), 2,
               "--integer-io: is for models whose activations are codes");
  expect_error(shop_->ulp("export m.safetensors --to safetensors --out m.safetensors"), 2, "another file");
  expect_error(shop_->ulp("prune m.safetensors --sparsity 0.5 --data data --out p.ONNX"), 2,
               "writes .safetensors");
  expect_error(shop_->ulp("train --model mlp --data data --out t.ulp"), 2, "writes .safetensors");
  expect_error(shop_->ulp("distill m.safetensors --student mlp --data data --out d.pt"), 2,
               "writes .safetensors");
  expect_error(shop_->ulp("quantize m.safetensors --data data --out q.gguf"), 2,
               "writes .ulp or .onnx or .tflite");
  expect_error(shop_->ulp("lower m.safetensors --out e.onnx"), 2, "writes .ulp");
  expect_error(shop_->ulp("export none.safetensors --out x.onnx"), 3, "none.safetensors");
  expect_error(shop_->ulp("export m.safetensors --out none/x.onnx"), 1, "none");
  write_file(*shop_ / "bad.safetensors", "nothing of the kind");
  expect_error(shop_->ulp("export bad.safetensors --out x.onnx"), 3, "bad.safetensors");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.onnx"));
}

}  // namespace
