#include "ulp/quant/recipe.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

std::string with(const std::string& fields) {
  return R"({"type": "ulp.quant.Recipe", "version": 1)" + fields + "}";
}

std::string error_of(const std::string& text) {
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
  EXPECT_NE(error_of("nonsense").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of("[]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "other", "version": 1})").find("ulp.quant.Recipe"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "ulp.quant.Recipe", "version": 2})").find("version"), std::string::npos);
  EXPECT_NE(error_of(R"({"type": "ulp.quant.Recipe"})").find("version"), std::string::npos);
  EXPECT_NE(error_of(with(R"(, "weights": {})")).find("'weights'"), std::string::npos);
  EXPECT_NE(error_of(with(R"(, "weight": {"scheme": {"bit": 4}})")).find("'weight.scheme.bit'"),
            std::string::npos);
  EXPECT_NE(error_of(with(R"(, "weight": {"observer": "best"})")).find("min_max | moving_average"),
            std::string::npos);
  EXPECT_NE(error_of(with(R"(, "weight": 3)")).find("an object"), std::string::npos);
  EXPECT_NE(error_of(with(R"(, "ops": ["conv2d", 3])")).find("list of strings"), std::string::npos);
  EXPECT_NE(error_of(with(R"(, "ops": ["conv9d"])")).find("conv9d"), std::string::npos);
  EXPECT_NE(error_of(with(R"(, "activation": {"scheme": {"bits": 12}})")).find("bits"), std::string::npos);
  EXPECT_THROW(Recipe::from_json("nonsense"), FileError);
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
