// ulp quantize --mode weight-only: methods, bits, and the data they take.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;

std::string book(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * 7 % 100) + " of the book.\n";
  return text;
}

class QuantizeWeights : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shop_ = new Workshop;
    write_file(*shop_ / "book.txt", book(300));
    const Outcome outcome = shop_->ulp(
        "train --model gpt2 --data book.txt --length 24 --batch 8 --max-steps 60 --threads 1 --out "
        "m.safetensors");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  static void TearDownTestSuite() { delete std::exchange(shop_, nullptr); }
  static Outcome quantize(const std::string& args) {
    return shop_->ulp("quantize m.safetensors --mode weight-only --threads 1 --data book.txt " + args);
  }
  static json result(const std::string& args) {
    const Outcome outcome = quantize(args + " --json");
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json();
  }
  static Workshop* shop_;
};
Workshop* QuantizeWeights::shop_ = nullptr;

TEST_F(QuantizeWeights, MethodsWithDataLoseLess) {
  const std::string two = "--group 32 --affine --no-embeddings --out q.ulp ";
  const double plain = result(two + "--bits 2")["loss"];
  for (const std::string method : {"gptq --act-order", "gptq --recompute", "awq"}) {
    const bool is_awq = method == "awq";  // whose scales a network without outliers has no use for
    const json found = result(two + (is_awq ? "--weight-bits 4 " : "--weight-bits 2 ") +
                              "--save-recipe used.json --method " + method);
    EXPECT_LT(found["loss"], is_awq ? found["float_loss"].get<double>() + 0.05 : plain) << method;
    EXPECT_LT(found["weight_bytes"], 0.5 * found["float_weight_bytes"].get<double>());
    const Outcome eval = shop_->ulp("eval q.ulp --json --data book.txt");
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_NEAR(json::parse(eval.out)["loss"], found["loss"], 1e-5) << "the engine file by itself";
    // The recipe says it all again.
    const json recipe = json::parse(read_file(*shop_ / "used.json"));
    EXPECT_EQ(recipe["method"], method.substr(0, method.find(' ')));
    EXPECT_EQ(recipe["act_order"], method == "gptq --act-order");
    EXPECT_EQ(recipe["bits"], is_awq ? 4 : 2);
    const std::string bytes = read_file(*shop_ / "q.ulp");
    ASSERT_EQ(quantize("--recipe used.json --out again.ulp").code, 0);
    EXPECT_EQ(read_file(*shop_ / "again.ulp"), bytes) << method;
  }
}

TEST_F(QuantizeWeights, SaysHowFarOffLayersAre) {
  const Outcome outcome =
      quantize("--method gptq --bits 3 --group 128 --act-order --damp 0.05 --samples 64 --out q.ulp -v");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("h.0.attn.c_attn reads weights of 3 bits: error 0.0"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("by plain rounding, 1536 rows"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("wte reads weights of 4 bits, rounded plainly"), std::string::npos)
      << outcome.err;
  const Outcome awq = quantize("--method awq --bits 4 --no-awq-clip --out q.ulp -v --report .");
  ASSERT_EQ(awq.code, 0) << awq.err;
  EXPECT_NE(awq.err.find("1 / s is in h.0.ln_1"), std::string::npos) << awq.err;
  EXPECT_NE(awq.err.find("its input is multiplied by 1 / s"), std::string::npos) << awq.err;
  EXPECT_NE(read_file(*shop_ / "report.html").find("1 / s is in h.0.ln_1"), std::string::npos);
}

TEST_F(QuantizeWeights, CalibratesOnOtherData) {
  write_file(*shop_ / "other.txt", std::string(3000, 'x') + book(20));
  result("--method gptq --bits 2 --out a.ulp");
  result("--method gptq --bits 2 --calibration book.txt --out b.ulp");
  EXPECT_EQ(read_file(*shop_ / "a.ulp"), read_file(*shop_ / "b.ulp"));
  result("--method gptq --bits 2 --calibration other.txt --out c.ulp");
  EXPECT_NE(read_file(*shop_ / "a.ulp"), read_file(*shop_ / "c.ulp"));
  EXPECT_EQ(
      shop_
          ->ulp("quantize m.safetensors --mode weight-only --method awq --calibration book.txt --test 0 "
                "--out d.ulp")
          .code,
      0);
}

TEST_F(QuantizeWeights, WrongUseIsSaid) {
  expect_error(quantize("--act-order --out x.ulp"), 2, "with the method gptq only, got rtn");
  expect_error(quantize("--method magic --out x.ulp"), 2, "--method");
  expect_error(quantize("--bits 5 --out x.ulp"), 2, "expected bits 8, 4, 3 or 2, got 5");
  expect_error(quantize("--bits 3 --weight-bits 4 --out x.ulp"), 2, "--bits and --weight-bits");
  expect_error(quantize("--method gptq --group 7 --out x.ulp"), 2, "an even group, or -1, got 7");
  expect_error(quantize("--method gptq --damp 2 --out x.ulp"), 2, "--damp");
  expect_error(quantize("--calibration book.txt --out x.ulp"), 2, "--calibration");
  expect_error(quantize("--method gptq --calibration none.txt --out x.ulp"), 3, "none.txt");
  expect_error(shop_->ulp("quantize m.safetensors --mode dynamic --bits 4 --out x.ulp"), 2,
               "--bits is for --explain and the modes static, qat and weight-only, got --mode dynamic");
  expect_error(shop_->ulp("quantize m.safetensors --method gptq --mode dynamic --out x.ulp"), 2,
               "--method: is for --mode qat, static, weight-only, got --mode dynamic");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.ulp"));
}

TEST_F(QuantizeWeights, SearchesForBitsWithinASize) {
  const std::string candidates = "--candidates 8,4/16/gptq,4/32/affine/hqq,4/-1 --samples 32 ";
  const json found =
      result(candidates + "--max-bytes 330KiB --save-recipe mixed.json --report mixed --out mixed.ulp");
  EXPECT_LE(found["weight_bytes"], 330 * 1024);
  int singles = 0, results = 0;
  double best = 0;
  const auto rows = found["search"]["measured"];
  for (const json& row : rows) results += row["result"] == "this one";
  for (const json& row : rows) {
    if (row["result"] == "this one") best = row["loss"];
  }
  for (const json& row : rows) {
    singles += row["estimate"].is_null();
    if (row["size [KiB]"].get<double>() <= 330) EXPECT_LE(best, row["loss"].get<double>()) << row.dump();
  }
  EXPECT_EQ(singles, 4);
  EXPECT_EQ(results, 1);
  EXPECT_EQ(found["search"]["bits"].size(), 9);
  EXPECT_EQ(found["search"]["interrupted"], false);
  EXPECT_NE(read_file(*shop_ / "mixed/report.html").find("Loss against size"), std::string::npos);
  const json recipe = json::parse(read_file(*shop_ / "mixed.json"));
  EXPECT_EQ(recipe["overrides"].size(), 9);
  EXPECT_FALSE(recipe.contains("search"));
  // The recipe makes the same file without a search.
  ASSERT_EQ(quantize("--recipe mixed.json --samples 32 --out again.ulp").code, 0);
  EXPECT_EQ(read_file(*shop_ / "again.ulp"), read_file(*shop_ / "mixed.ulp"));
  // A recipe may ask for the search, too.
  write_file(*shop_ / "search.json",
             R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 3, "search": {"max_bytes": "330KiB",
                 "candidates": ["8", "4/16/gptq", "4/32/affine/hqq", "4/-1"]}})");
  ASSERT_EQ(quantize("--recipe search.json --samples 32 --out again.ulp").code, 0);
  EXPECT_EQ(read_file(*shop_ / "again.ulp"), read_file(*shop_ / "mixed.ulp"));
}

TEST_F(QuantizeWeights, SearchesForTheSmallestWithinALoss) {
  const json found = result("--candidates 8,4/16,2/32/affine --samples 32 --max-loss 0.01 --out small.ulp");
  for (const json& row : found["search"]["measured"]) {
    if (row["result"] != "this one") continue;
    EXPECT_LE(row["against float"], 0.01);
    EXPECT_NEAR(row["size [KiB]"].get<double>() * 1024, found["weight_bytes"].get<double>(), 1);
  }
  // Without labels by the error of the results.
  result("--candidates 8,4/16 --samples 32 --max-loss 0.01 --test 0 --out small.ulp");
}

TEST_F(QuantizeWeights, SearchesThatCannotBeAreSaid) {
  expect_error(quantize("--max-bytes 10KiB --samples 8 --out y.ulp"), 1, "expected max_bytes of at least");
  const Outcome unreached = quantize("--max-loss 0 --candidates 2/-1 --samples 8 --out y.ulp");
  EXPECT_EQ(unreached.code, 1);
  EXPECT_NE(unreached.err.find("got max_loss 0; the least loss measured is 0."), std::string::npos)
      << unreached.err;
  expect_error(quantize("--max-bytes lots --out y.ulp"), 2, "--max-bytes: expected bytes as 12GiB");
  expect_error(quantize("--max-loss -1 --out y.ulp"), 2, "--max-loss");
  expect_error(quantize("--candidates 8 --out y.ulp"), 2, "expected max_bytes, max_loss or both, got none");
  expect_error(quantize("--max-loss 1 --candidates 8,4/x --out y.ulp"), 2, "got '4/x'");
  for (const std::string flag : {"--bits 3", "--weight-bits 3", "--group 64", "--affine", "--method gptq"})
    expect_error(quantize("--max-loss 1 --out y.ulp " + flag), 2, "a search takes it from --candidates");
  expect_error(quantize("--max-loss 1 --calibration none.txt --out y.ulp"), 3, "none.txt");
  expect_error(shop_->ulp("quantize m.safetensors --mode dynamic --max-loss 1 --out y.ulp"), 2,
               "are for --mode weight-only, got --mode dynamic");
  write_file(
      *shop_ / "unknown.json",
      R"({"type": "ulp.quant.WeightOnlyRecipe", "version": 3, "overrides": [{"weight": "h.7.*", "bits": 8}]})");
  expect_error(quantize("--recipe unknown.json --out y.ulp"), 1, "got 'h.7.*'");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "y.ulp"));
}

TEST_F(QuantizeWeights, CtrlCWritesTheBestOfASearch) {
  write_file(*shop_ / "wide.txt", book(20000));
  for (int seconds = 2; seconds <= 64 && !std::filesystem::exists(*shop_ / "best.ulp"); seconds *= 2) {
    const pid_t process = shop_->start(
        "quantize m.safetensors --mode weight-only --max-bytes 1MiB --samples 5000 --threads 1 --data "
        "wide.txt "
        "--out best.ulp --save-recipe best.json");
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ::kill(process, SIGINT);
    EXPECT_EQ(Workshop::wait(process), 130);
  }
  ASSERT_TRUE(std::filesystem::exists(*shop_ / "best.ulp"));
  EXPECT_EQ(shop_->ulp("eval best.ulp --data book.txt").code, 0);
  EXPECT_FALSE(json::parse(read_file(*shop_ / "best.json")).contains("search"));
}

TEST_F(QuantizeWeights, RotatesDecodersOnly) {
  ASSERT_EQ(
      shop_
          ->ulp("train --model llama --data book.txt --length 24 --batch 8 --max-steps 20 --threads 1 --out "
                "llama.safetensors")
          .code,
      0);
  const auto llama = [&](const std::string& args) {
    return shop_->ulp("quantize llama.safetensors --threads 1 --data book.txt --out llama.ulp --json " +
                      args);
  };
  for (const std::string args :
       {"--mode weight-only --bits 8 --rotate", "--method rotate,smoothquant",
        "--mode weight-only --max-loss 0.01 --candidates 8,4/16 --rotate --samples 16"}) {
    const Outcome outcome = llama(args + " --compare --save-recipe used.json");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json found = json::parse(outcome.out);
    EXPECT_NEAR(found["loss"], found["float_loss"].get<double>(), 0.03) << args;
    const std::string bytes = read_file(*shop_ / "llama.ulp");
    ASSERT_EQ(
        llama("--recipe used.json" + std::string(args.find("samples") < args.size() ? " --samples 16" : ""))
            .code,
        0);
    EXPECT_EQ(read_file(*shop_ / "llama.ulp"), bytes) << args;
  }
  EXPECT_NE(llama("--method rotate -v").err.find("channels is rotated"), std::string::npos);
  const json gpt2 = result("--rotate --bits 8 --out rotated.ulp");
  EXPECT_NEAR(gpt2["loss"], gpt2["float_loss"].get<double>(), 0.03);
  ASSERT_EQ(
      shop_
          ->ulp("train --model lstm --data book.txt --length 24 --batch 8 --max-steps 2 --threads 1 --out "
                "lstm.safetensors")
          .code,
      0);
  expect_error(shop_->ulp("quantize lstm.safetensors --mode weight-only --rotate --test 0 --out y.ulp"), 1,
               "which reads the stream");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "y.ulp"));
}

TEST_F(QuantizeWeights, HqqTakesNoData) {
  const std::string two = "--group 32 --affine --no-embeddings --bits 2 --out q.ulp ";
  EXPECT_LT(result(two + "--method hqq")["loss"], result(two)["loss"].get<double>() + 0.3);
  const Outcome outcome =
      shop_->ulp("quantize m.safetensors --mode weight-only --method hqq --bits 3 --test 0 --out q.ulp");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(QuantizeWeights, CtrlCIsExitCode130AndLeavesNothing) {
  write_file(*shop_ / "long.txt", book(100000));
  const pid_t process = shop_->start(
      "quantize m.safetensors --mode weight-only --method gptq --samples 1000000 --recompute --threads 1 "
      "--test 0 --data "
      "long.txt "
      "--out late.ulp");
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ::kill(process, SIGINT);
  EXPECT_EQ(Workshop::wait(process), 130);
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "late.ulp"));
}

}  // namespace
