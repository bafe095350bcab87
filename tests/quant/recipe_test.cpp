#include "ulp/quant/recipe.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

std::string with(const std::string& fields, int version = kRecipeVersion) {
  return R"({"type": "ulp.quant.Recipe", "version": )" + std::to_string(version) + fields + "}";
}

std::string parse_error(const std::string& text) {
  try {
    Recipe::from_json(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recipe, X86Int8) {
  const Recipe recipe = Recipe::x86_int8();
  recipe.validate();
  EXPECT_EQ(recipe.activation.scheme.to_string(), "u8 affine per tensor");
  EXPECT_EQ(recipe.weight.scheme.to_string(), "s8 symmetric restricted per channel 0");
  EXPECT_EQ(recipe.activation.observer, ObserverKind::histogram);
}

TEST(Recipe, JsonRoundTrip) {
  Recipe recipe = Recipe::x86_int8();
  recipe.activation = {{.bits = 7, .mapping = Mapping::symmetric}, ObserverKind::moving_average};
  recipe.weight.scheme.granularity = PerTensor{};
  recipe.ops = {"conv2d"};
  recipe.skip_modules = {"conv1", "layer*.downsample"};
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
  EXPECT_EQ(Recipe::from_json(with("")), Recipe::x86_int8());
}

TEST(Recipe, RefusesForeignNewerAndUnknown) {
  EXPECT_NE(parse_error("nonsense").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(parse_error("[]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(parse_error(R"({"type": "other", "version": 1})").find("ulp.quant.Recipe"), std::string::npos);
  EXPECT_NE(parse_error(with("", kRecipeVersion + 1)).find("expected a recipe of version 1 to"),
            std::string::npos);
  EXPECT_NE(parse_error(with("", 0)).find("version"), std::string::npos);
  EXPECT_NE(parse_error(R"({"type": "ulp.quant.Recipe"})").find("version"), std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "weights": {})")).find("'weights'"), std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "weight": {"scheme": {"bit": 4}})")).find("'weight.scheme.bit'"),
            std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "weight": {"observer": "best"})")).find("expected min_max, moving_average"),
            std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "activation": {"percentile": "high"})")).find("a number"),
            std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "weight": 3)")).find("an object"), std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "ops": ["conv2d", 3])")).find("list of strings"), std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "ops": ["conv9d"])")).find("conv9d"), std::string::npos);
  EXPECT_NE(parse_error(with(R"(, "activation": {"scheme": {"bits": 12}})")).find("bits"), std::string::npos);
  EXPECT_THROW(Recipe::from_json("nonsense"), FileError);
}

// As version 1 wrote it.
TEST(Recipe, ReadsOlderVersions) {
  const std::string old = R"({
    "type": "ulp.quant.Recipe", "version": 1, "ops": ["conv2d", "linear", "add"], "skip_modules": ["fc"],
    "activation": {"observer": "moving_average", "scheme": {"bits": 8, "granularity": "per_tensor",
                   "mapping": "affine", "range": "full", "signed": false}},
    "weight": {"observer": "min_max", "scheme": {"bits": 8, "granularity": {"per_channel": 0},
               "mapping": "symmetric", "range": "restricted", "signed": true}}})";
  Recipe expected = Recipe::x86_int8();
  expected.ops = {"conv2d", "linear", "add"};
  expected.skip_modules = {"fc"};
  expected.activation.observer = ObserverKind::moving_average;
  EXPECT_EQ(Recipe::from_json(old), expected);
}

TEST(Recipe, ObserversAndTheirParametersInJson) {
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::moving_average, ObserverKind::histogram,
        ObserverKind::percentile, ObserverKind::entropy, ObserverKind::mse, ObserverKind::fixed}) {
    Recipe recipe = Recipe::x86_int8();
    recipe.activation.observer = kind;
    recipe.activation.averaging_constant = 0.1;
    recipe.activation.percentile = 99.9;
    recipe.activation.fixed_max = 0.99609375;
    EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
  }
  const auto refused = [](const std::string& fields) {
    return parse_error(with(", \"activation\": {" + fields + "}"));
  };
  EXPECT_NE(refused(R"("observer": "percentile", "percentile": 0)").find("activation.percentile"),
            std::string::npos);
  EXPECT_NE(refused(R"("averaging_constant": 1.5)").find("activation.averaging_constant"), std::string::npos);
  EXPECT_NE(refused(R"("observer": "fixed")").find("fixed_min < fixed_max"), std::string::npos);
  EXPECT_NE(refused(R"("lowest": 1)").find("'activation.lowest'"), std::string::npos);
}

TEST(Recipe, TheExampleOfTheDocumentationIsRead) {
  std::ostringstream page;
  page << std::ifstream(ULP_SOURCE_DIR "/docs/quantization.md").rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("```json") + 7;
  const Recipe recipe = Recipe::from_json(text.substr(begin, text.find("```", begin) - begin));
  EXPECT_EQ(recipe.activation.observer, ObserverKind::percentile);
  EXPECT_EQ(recipe.activation.percentile, 99.9);
  EXPECT_EQ(recipe.weight.observer, ObserverKind::mse);
}

TEST(Recipe, JsonTextIsThatOfVersionThree) {
  Recipe recipe = Recipe::x86_int8();
  recipe.ops = {"linear"};
  recipe.overrides.push_back(
      {.op = {}, .module = "fc", .value = {}, .activation = {}, .weight = recipe.weight});
  const std::string weight = R"({
    "averaging_constant": 0.01,
    "fixed_max": 0.0,
    "fixed_min": 0.0,
    "observer": "min_max",
    "percentile": 99.99,
    "scheme": {
      "bits": 8,
      "granularity": {
        "per_channel": 0
      },
      "mapping": "symmetric",
      "range": "restricted",
      "signed": true
    }
  })";
  const std::string text = recipe.to_json();
  EXPECT_TRUE(text.starts_with("{\n  \"activation\": {\n    \"averaging_constant\": 0.01,")) << text;
  EXPECT_NE(text.find("\"weight\": " + weight + "\n}"), std::string::npos) << text;
  EXPECT_NE(text.find("\"overrides\": [\n    {\n      \"module\": \"fc\",\n      \"weight\": {"),
            std::string::npos)
      << text;
  EXPECT_EQ(Recipe::from_json(text), recipe);
}

TEST(Recipe, GranularitiesInJson) {
  const auto of = [](const std::string& granularity) {
    return parse_error(with(R"(, "weight": {"scheme": {"granularity": )" + granularity + "}}"));
  };
  EXPECT_EQ(of(R"("per_tensor")"), "");
  EXPECT_EQ(of(R"({"per_channel": 0})"), "");
  // Read, and refused by the static recipe, which has no place for them.
  EXPECT_NE(of(R"({"per_group": 32})").find("got per group 32"), std::string::npos);
  EXPECT_NE(of(R"("per_token")").find("got per token"), std::string::npos);
  EXPECT_NE(of(R"({"per_block": [2, 4]})").find("got per block 2x4"), std::string::npos);
  EXPECT_NE(of(R"({"per_group": 0})").find("group size"), std::string::npos);
  for (const char* text : {"3", R"("per_row")", R"({"per_group": "all"})", R"({"per_block": [2]})",
                           R"({"per_block": 2})", R"({"per_channel": 0, "per_group": 2})", "{}"}) {
    EXPECT_NE(of(text).find("expected \"per_tensor\", {\"per_channel\": axis}"), std::string::npos) << text;
  }
}

TEST(Recipe, RefusesWhatCannotRun) {
  Recipe recipe = Recipe::x86_int8();
  recipe.activation.scheme.granularity = PerChannel{1};
  EXPECT_THROW(recipe.validate(), Error);
  recipe = Recipe::x86_int8();
  recipe.weight.scheme.granularity = PerChannel{1};
  EXPECT_THROW(recipe.validate(), Error);
  recipe = Recipe::x86_int8();
  recipe.weight.scheme.mapping = Mapping::affine;
  EXPECT_THROW(recipe.validate(), Error);
}

TEST(Recipe, SkipsModulesAndTheirChildren) {
  Recipe recipe;
  recipe.skip_modules = {"layer1", "*.downsample", "fc"};
  EXPECT_TRUE(recipe.skips("layer1"));
  EXPECT_TRUE(recipe.skips("layer1.0.conv1"));
  EXPECT_TRUE(recipe.skips("layer2.0.downsample.0"));
  EXPECT_TRUE(recipe.skips("fc"));
  EXPECT_FALSE(recipe.skips("layer10.0"));
  EXPECT_FALSE(recipe.skips("fc2"));
}

}  // namespace
}  // namespace ulp::quant
