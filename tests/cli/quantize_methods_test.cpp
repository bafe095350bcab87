// ulp quantize --method in mode static: which methods, their recipe, and wrong use.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::write_file;

class QuantizeMethods : public WithLeNet5 {
 protected:
  static Outcome quantize(const std::string& args) {
    return shop_->ulp("quantize m.safetensors --data data --samples 48 --threads 1 " + args);
  }
};

TEST_F(QuantizeMethods, EachIsNamedAndTheRecipeSaysItAgain) {
  const Outcome outcome = quantize(
      "--bits 4 --method cle,smoothquant,adaround,bias_correction --smoothquant-alpha auto "
      "--adaround-iterations 60 "
      "--compare --out q.ulp -v --save-recipe used.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* says : {"conv1: channels equalized with conv2", "fc1: smoothquant",
                           "conv2: rounding learned: error ", "fc1: bias corrected by up to "})
    EXPECT_NE(outcome.err.find(says), std::string::npos) << says << " in " << outcome.err;
  const json recipe = json::parse(read_file(*shop_ / "used.json"));
  EXPECT_EQ(recipe["method"], json({"cle", "smoothquant", "adaround", "bias_correction"}));
  EXPECT_EQ(recipe["smoothquant_alpha"], "auto");
  EXPECT_EQ(recipe["adaround_iterations"], 60);
  EXPECT_EQ(recipe["weight"]["scheme"]["bits"], 4);
  const std::string bytes = read_file(*shop_ / "q.ulp");
  ASSERT_EQ(quantize("--recipe used.json --out again.ulp").code, 0);
  EXPECT_EQ(read_file(*shop_ / "again.ulp"), bytes);
  ASSERT_EQ(quantize("--recipe used.json --recompute --out again.ulp --test 0").code, 0);
  EXPECT_EQ(shop_->ulp("eval q.ulp --data data").code, 0);
}

TEST_F(QuantizeMethods, FewBitsLoseLess) {
  const auto loss = [](const std::string& args) {
    const Outcome outcome = quantize("--bits 2 --out q.ulp --json " + args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out)["loss"].get<double>() : 0;
  };
  EXPECT_LT(loss("--method adaround,bias_correction --adaround-iterations 200"), loss(""));
}

TEST_F(QuantizeMethods, WrongUseIsSaidAndNothingIsWritten) {
  expect_error(quantize("--method gptq --out x.ulp"), 2,
               "expected method rotate, cle, smoothquant, adaround or bias_correction, got 'gptq'");
  expect_error(quantize("--method cle,cle --out x.ulp"), 2, "expected each method once, got 'cle' twice");
  expect_error(quantize("--method smoothquant --smoothquant-alpha 1.5 --out x.ulp"), 2,
               "a number in [0, 1] or auto");
  expect_error(quantize("--smoothquant-alpha 0.3 --out x.ulp"), 2,
               "expected the method smoothquant for smoothquant_alpha");
  expect_error(quantize("--method adaround --adaround-iterations 0 --out x.ulp"), 2, "--adaround-iterations");
  expect_error(quantize("--mode qat --method cle --out x.ulp"), 2,
               "expected no methods of static quantization where a network is trained, got cle");
  expect_error(quantize("--mode dynamic --method smoothquant --out x.ulp"), 2, "--method");
  expect_error(quantize("--mode weight-only --method cle --out x.ulp"), 2,
               "expected one of rtn, gptq, awq, hqq, got cle");
  expect_error(quantize("--mode weight-only --method awq,gptq --out x.ulp"), 2,
               "expected one of rtn, gptq, awq, hqq, got awq,gptq");
  expect_error(quantize("--bits 9 --out x.ulp"), 2, "bits");
  write_file(*shop_ / "r.json", R"({"type": "ulp.quant.Recipe", "version": 5, "method": "cle"})");
  expect_error(quantize("--recipe r.json --out x.ulp"), 3, "method");
  write_file(*shop_ / "r.json",
             R"({"type": "ulp.quant.Recipe", "version": 5, "backend": "binary", "method": ["cle"]})");
  expect_error(quantize("--recipe r.json --out x.ulp"), 3, "expected no methods for binary, got cle");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.ulp"));
}

}  // namespace
