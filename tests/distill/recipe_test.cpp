// Recipes of distillation: the text of a term, JSON, and what is refused.
#include "ulp/distill/recipe.h"

#include "error_of.h"
#include "ulp/distill/losses/registry.h"

namespace ulp::distill::tests {
namespace {

using ulp::test::error_of;

std::string error_of_term(const std::string& text) {
  return error_of([&] { Term::from_text(text); });
}

TEST(Term, ItsTextSaysLossWeightOptionsAndPlaces) {
  const auto kd = Term::from_text("kd:T=4,alpha=0.25");
  EXPECT_EQ(kd.term, (Term{.loss = "kd", .options = "T=4", .weight = WeightSchedule::constant(0.75)}));
  EXPECT_EQ(kd.labels, 0.25);
  const auto at = Term::from_text("at:1000@layer2");
  EXPECT_EQ(
      at.term,
      (Term{
          .loss = "at", .weight = WeightSchedule::constant(1000), .student = "layer2", .teacher = "layer2"}));
  EXPECT_FALSE(at.labels);
  EXPECT_EQ(Term::from_text("mse:100>0,@layer2=layer3").term,
            (Term{.loss = "mse", .weight = {100, 0}, .student = "layer2", .teacher = "layer3"}));
  EXPECT_EQ(Term::from_text("mse@a:input=b.c:scores").term,
            (Term{.loss = "mse", .student = "a:input", .teacher = "b.c:scores"}));
  EXPECT_EQ(Term::from_text("kd:T=8>1:0.2-0.9").term,
            (Term{.loss = "kd", .temperature = WeightSchedule{8, 1, 0.2, 0.9}}));
  EXPECT_EQ(
      Term::from_text("crd:dim=16,positive=same_class,0.8").term,
      (Term{
          .loss = "crd", .options = "dim=16,positive=same_class", .weight = WeightSchedule::constant(0.8)}));
  // The order of weight and alpha is no matter; alpha of dkd is its own.
  EXPECT_EQ(Term::from_text("kd:5,alpha=0.2").term, Term::from_text("kd:alpha=0.2,5").term);
  EXPECT_EQ(Term::from_text("kd:5,alpha=0.2").term.weight, WeightSchedule::constant(4));
  EXPECT_EQ(Term::from_text("dkd:alpha=2").term.options, "alpha=2");
  EXPECT_FALSE(Term::from_text("dkd:alpha=2").labels);
  // A teacher's place may be its output.
  EXPECT_EQ(Term::from_text("mse@fc=").term.teacher, "");
}

TEST(Term, EveryLossIsATerm) {
  for (const LossEntry& entry : loss_entries()) EXPECT_EQ(Term::from_text(entry.name).term.loss, entry.name);
}

TEST(Term, WrongTextIsRefusedByWhatIsWrong) {
  EXPECT_SAYS(error_of_term("kid"), "expected one of at, cc,");
  EXPECT_SAYS(error_of_term("kid"), "got 'kid'");
  EXPECT_SAYS(error_of_term(""), "got ''");
  EXPECT_SAYS(error_of_term("kd:T=x"), "got");
  EXPECT_SAYS(error_of_term("kd:T=-1"), "T");
  EXPECT_SAYS(error_of_term("kd:beta=3"), "expected the options T of kd, got 'beta'");
  EXPECT_SAYS(error_of_term("at:beta=3"), "expected no options of at, got 'beta'");
  EXPECT_SAYS(error_of_term("kd:much"), "in 'kd:much', got 'much'");
  EXPECT_SAYS(error_of_term("kd:T=4>"), "in 'kd:T=4>', got '4>'");
  EXPECT_SAYS(error_of_term("kd:alpha=2"), "expected alpha in [0, 1] in 'kd:alpha=2', got '2'");
  EXPECT_SAYS(error_of_term("kd:alpha=1>0"), "expected alpha in [0, 1]");
  EXPECT_SAYS(error_of_term("kd:alpha=0.1,alpha=0.2"), "expected one alpha in 'kd:alpha=0.1,alpha=0.2'");
  EXPECT_SAYS(error_of_term("kd:1,2"), "expected one weight in 'kd:1,2', got '2', too");
  EXPECT_SAYS(error_of_term("kd:T=4,T=5"), "expected T of kd once");
  EXPECT_SAYS(error_of_term("at@"), "expected a place behind '@'");
  EXPECT_SAYS(error_of_term("at@=layer1"), "expected a place behind '@'");
}

TEST(Term, ADescriptionSaysAllOfIt) {
  EXPECT_EQ(Term::from_text("kd:T=4,alpha=0.1").term.describe(), "kd (T=4) x 0.9");
  EXPECT_EQ(Term::from_text("at:1000@layer2").term.describe(), "at x 1000 at layer2");
  EXPECT_EQ(Term::from_text("mse:100>0@layer2=layer3").term.describe(), "mse x 100>0 at layer2 = layer3");
  EXPECT_EQ(Term::from_text("kd:T=8>1").term.describe(), "kd, T 8>1 x 1");
}

TEST(Recipe, AlphaIsTheWeightOfTheLabels) {
  EXPECT_EQ(Recipe::from_terms({"kd"}).labels, 1);
  const Recipe recipe = Recipe::from_terms({"kd:alpha=0.1", "at:1000@layer1", "sp:alpha=0.1"});
  EXPECT_EQ(recipe.labels, 0.1);
  EXPECT_EQ(recipe.terms.size(), 3U);
  EXPECT_EQ(recipe.terms[1].weight, WeightSchedule::constant(1000));
  EXPECT_ERROR(Recipe::from_terms({"kd:alpha=0.1", "sp:alpha=0.2"}), "expected one alpha, got 0.1 and 0.2");
}

TEST(Recipe, JsonIsReadBackToTheSameRecipe) {
  const Recipe recipe = Recipe::from_terms({"kd:T=8>1:0.25-0.75,alpha=0.1", "mse:100>0@layer2=layer3",
                                            "crd:dim=16,0.8@a:input", "minilm:heads=4@b", "mse@x="});
  const std::string json = recipe.to_json();
  EXPECT_EQ(Recipe::from_json(json), recipe);
  EXPECT_EQ(Recipe::from_json(json).to_json(), json);
  EXPECT_SAYS(json, "\"type\": \"ulp.distill.Recipe\"");
  EXPECT_EQ(Recipe::from_json(Recipe{}.to_json()), Recipe{});
  EXPECT_EQ(Recipe::from_json(R"({"type": "ulp.distill.Recipe", "version": 1})"), Recipe{});
  const Recipe labels = {.terms = {}, .labels = 1};
  EXPECT_EQ(Recipe::from_json(labels.to_json()), labels);
}

std::string error_of_json(const std::string& fields,
                          const std::string& head = R"("type": "ulp.distill.Recipe", "version": 1)") {
  return error_of([&] { Recipe::from_json("{" + head + fields + "}"); });
}

TEST(Recipe, WrongJsonIsRefusedByTheFieldsName) {
  EXPECT_SAYS(error_of_json(R"(, "colour": 3)"), "colour");
  EXPECT_SAYS(error_of_json(R"(, "labels": "much")"), "labels");
  EXPECT_SAYS(error_of_json(R"(, "labels": -1)"), "labels");
  EXPECT_SAYS(error_of_json(R"(, "terms": [{"loss": "kid"}])"), "'kid'");
  EXPECT_SAYS(error_of_json(R"(, "terms": [{"loss": "kd", "weight": "x"}])"), "weight");
  EXPECT_SAYS(error_of_json(R"(, "terms": [{"loss": "kd", "options": "beta=1"}])"), "'beta'");
  EXPECT_SAYS(error_of_json("", R"("type": "ulp.distill.Recipe", "version": 99)"), "99");
  EXPECT_SAYS(error_of_json("", R"("type": "ulp.prune.Recipe", "version": 1)"),
              "\"type\": \"ulp.distill.Recipe\"");
  EXPECT_THROW(Recipe::from_json("{"), FileError);
  EXPECT_THROW(Recipe::from_json("[]"), FileError);
}

TEST(Recipe, WhatTeachesNothingIsRefused) {
  const auto error = [](const Recipe& recipe) { return error_of([&] { recipe.validate(); }); };
  EXPECT_SAYS(error({.terms = {}, .labels = 0}), "expected a loss or labels of a weight > 0, got none");
  EXPECT_SAYS(error({.terms = {{.weight = WeightSchedule::constant(0)}}, .labels = 0}),
              "expected a loss or labels");
  EXPECT_SAYS(error({.terms = {{.weight = {1, -1}}}}), "expected a weight >= 0 of kd, got 1>-1");
  EXPECT_SAYS(error({.terms = {{.temperature = WeightSchedule{4, 0}}}}),
              "expected a temperature > 0 of kd, got 4>0");
  EXPECT_SAYS(error({.terms = {{.loss = "at", .temperature = WeightSchedule{4, 1}}}}),
              "expected a loss with a temperature, got at");
  EXPECT_SAYS(error({.labels = -1}), "labels");
}

}  // namespace
}  // namespace ulp::distill::tests
