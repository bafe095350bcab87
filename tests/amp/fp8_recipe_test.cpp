#include "ulp/amp/fp8/fp8_recipe.h"

#include <gtest/gtest.h>

#include "error_of.h"

namespace {

using namespace ulp::amp;
using ulp::test::error_of;

TEST(Fp8Recipe, DefaultsAreTransformerEngines) {
  const Fp8LayerRecipe recipe;
  EXPECT_EQ(recipe.scaling, Fp8Scaling::delayed);
  EXPECT_EQ(recipe.history, 1024);
  EXPECT_EQ(recipe.margin, 0);
  EXPECT_EQ(recipe.amax, AmaxAlgorithm::max);
  EXPECT_EQ(recipe.format, Fp8Format::hybrid);
  EXPECT_EQ(recipe.text(), "{}");
}

TEST(Fp8Recipe, GoesThroughJson) {
  Fp8Recipe recipe = Fp8Recipe::named("nvfp4");
  recipe.layers.hadamard = false;
  recipe.first = true;
  recipe.skip_modules = {"head", "*.attn"};
  recipe.overrides = {{.module = "layer1", .layers = Fp8Recipe::named("fp8:block").layers}};
  EXPECT_EQ(Fp8Recipe::from_json(recipe.to_json()), recipe);
  EXPECT_EQ(Fp8LayerRecipe::from_text(recipe.layers.text()), recipe.layers);
  EXPECT_EQ(recipe.layers_of("layer1.0.conv1").scaling, Fp8Scaling::block);
  EXPECT_EQ(recipe.layers_of("layer2").scaling, Fp8Scaling::nvfp4);
}

TEST(Fp8Recipe, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(error_of([] { Fp8Recipe::named("fp8"); }),
            "[amp.Fp8Recipe.named] expected fp8:delayed, fp8:current, fp8:rowwise, fp8:block, mxfp8 or "
            "nvfp4, got 'fp8'");
  Fp8Recipe recipe;
  recipe.layers.history = 0;
  EXPECT_EQ(error_of([&] { recipe.validate(); }),
            "[amp.Fp8Recipe] expected layers.history in [1, 1048576], got 0");
  recipe.layers.history = 1;
  recipe.overrides = {Fp8Override{}};
  EXPECT_SAYS(error_of([&] { recipe.validate(); }), "expected the path of a module");
  EXPECT_SAYS(error_of([] { Fp8LayerRecipe::from_text("[]"); }),
              "expected the fields of a recipe as JSON, got '[]'");
  EXPECT_SAYS(error_of([] { Fp8LayerRecipe::from_text(R"({"scaling": "none"})"); }), "scaling");
  EXPECT_SAYS(error_of([] { Fp8LayerRecipe::from_text(R"({"history": 0})"); }), "history");
  EXPECT_SAYS(error_of([] { Fp8Recipe::from_json(R"({"type": "ulp.amp.Fp8Recipe", "version": 2})"); }),
              "expected a recipe of version 1 to 1, got 2");
}

}  // namespace
