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
