// `ulp quantize --explain`: the worked examples through the tool, its tables, and wrong use.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;

json explained(const std::string& args) {
  const Outcome outcome = Workshop().ulp("quantize --json --explain " + args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

int product(const json& a, const json& b) {
  int sum = 0;
  for (size_t i = 0; i < 4; ++i) sum += a["codes"][0][i].get<int>() * b["codes"][0][i].get<int>();
  return sum;
}

TEST(QuantizeExplain, FullRangeIsBiasedRestrictedIsNot) {
  const std::string a = "'-2.2,-1.1,1.1,2.2' --signed --symmetric", b = "'.5,.3,.3,.5' --signed --symmetric";
  EXPECT_EQ(product(explained(a), explained(b)), -127);
  EXPECT_EQ(product(explained(a + " --restricted"), explained(b + " --restricted")), 0);
}

TEST(QuantizeExplain, SignedFourBits) {
  const json e = explained("'-1.54,0.22;-0.26,2.0' --bits 4 --signed --symmetric --restricted");
  EXPECT_EQ(e["scheme"], "s4 symmetric restricted per tensor");
  EXPECT_EQ(e["codes"], json::parse("[[-5, 1], [-1, 7]]"));
  EXPECT_NEAR(e["parts"][0]["scale"], 2.0 / 7, 1e-6);
  EXPECT_EQ(e["parts"][0]["zero_point"], 0);
  EXPECT_NEAR(e["dequantized"][0][0], -10.0 / 7, 1e-6);
  EXPECT_NEAR(e["max_abs"], 1.54 - 10.0 / 7, 1e-6);
}

TEST(QuantizeExplain, UnsignedEightBits) {
  const json e = explained("'0.34,3.75;-4.7,0.68'");
  EXPECT_EQ(e["codes"], json::parse("[[152, 255], [0, 163]]"));
  EXPECT_EQ(e["parts"][0]["zero_point"], 142);
  EXPECT_LT(e["max_abs"], 8.45 / 255 / 2 + 1e-6);
  EXPECT_GT(e["sqnr_db"], 40);
}

TEST(QuantizeExplain, GranularitiesFormatsAndClipping) {
  EXPECT_EQ(explained("'1,2;3,4' --granularity token")["parts"].size(), 2U);
  EXPECT_EQ(explained("'1,2,3;4,5,6' --granularity group:2")["parts"][1]["part"], "row 0, column 2");
  EXPECT_EQ(explained("'1,2;3,4' --granularity block:2x1")["parts"][1]["max"], 4);
  EXPECT_EQ(explained("'1,9' --bits 4 --clip=-2,2 --signed --symmetric --restricted")["codes"][0][1], 7);
  const json fp8 = explained("'1,0.3' --format e5m2");
  EXPECT_EQ(fp8["scheme"], "fp8_e5m2 per tensor");
  EXPECT_FALSE(fp8["parts"][0].contains("zero_point"));
}

TEST(QuantizeExplain, PrintsTables) {
  const Outcome outcome = Workshop().ulp("quantize --explain '1.5,-2;0.3,4' --bits 4");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* text :
       {"u4 affine per tensor: codes 0 to 15", "zero", "column 1", "dequantized", "SQNR", "0.4"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " is not in:\n" << outcome.out;
  }
}

TEST(QuantizeExplain, TheDocumentationShowsWhatTheToolPrints) {
  const Outcome outcome = Workshop().started(
      "quantize --explain '-1.54,0.22;-0.26,2.0' --bits 4 --signed --symmetric --restricted", "LC_ALL=C");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string page = read_file(ULP_SOURCE_DIR "/docs/quantization.md");
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_NE(page.find((line.empty() ? "" : "    ") + line + "\n"), std::string::npos) << line;
  }
}

TEST(QuantizeExplain, WrongUseSaysWhatWasExpected) {
  const Workshop shop;
  expect_error(shop.ulp("quantize --explain '1,2;3'"), 2, "expected 2 numbers in each row");
  expect_error(shop.ulp("quantize --explain '1,x'"), 2, "expected a finite number, got 'x'");
  expect_error(shop.ulp("quantize --explain ''"), 2, "expected a finite number");
  expect_error(shop.ulp("quantize --explain '1,2' --bits 9"), 2, "--bits");
  expect_error(shop.ulp("quantize --explain '1,2' --restricted"), 2, "full range with unsigned");
  expect_error(shop.ulp("quantize --explain '1,2' --granularity channel:2"), 2, "a dimension 2");
  expect_error(shop.ulp("quantize --explain '1,2' --granularity rows"), 2, "block:ROWSxCOLUMNS");
  expect_error(shop.ulp("quantize --explain '1,2' --format int8"), 2, "floating-point format");
  expect_error(shop.ulp("quantize --bits 4"), 2, "--explain");
  expect_error(shop.ulp("quantize --out x.ulp"), 2, "model");
  expect_error(shop.ulp("quantize model.safetensors"), 2, "--out");
}

// The recipe is read before the model.
TEST(QuantizeRecipe, NewerVersionsAndUnknownFieldsAreBadFiles) {
  const Workshop shop;
  const auto refused = [&](const std::string& recipe, const std::string& says) {
    ulp::test::write_file(shop / "recipe.json", recipe);
    expect_error(shop.ulp("quantize m.safetensors --recipe recipe.json --out x.ulp"), 3, says);
  };
  refused(R"({"type": "ulp.quant.Recipe", "version": 999})", "expected a recipe of version 1 to");
  refused(R"({"type": "ulp.quant.Recipe", "version": 2, "activations": {}})", "'activations'");
  refused(R"({"type": "ulp.quant.Recipe", "version": 2, "weight": {"observer": "entropie"}})",
          "entropy, mse or fixed");
  refused("{", "expected a recipe in JSON in 'recipe.json'");
}

TEST(QuantizeRecipe, NumbersOutOfRangeNameTheirPathAndTheFile) {
  const Workshop shop;
  const auto refused = [&](const std::string& recipe, const std::string& says) {
    ulp::test::write_file(shop / "recipe.json", recipe);
    const Outcome outcome = shop.ulp("quantize m.safetensors --recipe recipe.json --out x.ulp");
    expect_error(outcome, 3, says);
    expect_error(outcome, 3, "in the recipe 'recipe.json': ");
  };
  refused(R"({"type": "ulp.quant.QatRecipe", "version": 1, "freeze_observers_after": 2})",
          "expected a number in [0, 1] in 'freeze_observers_after', got 2");
  refused(R"({"type": "ulp.quant.QatRecipe", "version": 1, "training": {"batch": 0}})",
          "in 'training.batch', got 0");
  refused(R"({"type": "ulp.quant.QatRecipe", "version": 1, "training": {"learning_rate": 1e300}})",
          "in 'training.learning_rate', got 1e+300");
  refused(R"({"type": "ulp.quant.QatRecipe", "version": 1, "training": {"seed": 18446744073709551616}})",
          "expected a whole number >= 0 in 'training.seed'");
}

}  // namespace
