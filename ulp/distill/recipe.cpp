#include "ulp/distill/recipe.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/distill/losses/registry.h"

namespace ulp::distill {

namespace {

constexpr const char* kRecipeWhere = "distill.Recipe";
constexpr int kVersion = 1;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(separator, begin);
    if (std::string part = text.substr(begin, end == std::string::npos ? end : end - begin); !part.empty())
      parts.push_back(std::move(part));
  }
  return parts;
}

WeightSchedule ramp_of(const std::string& text, const std::string& term) {
  const auto ramp = WeightSchedule::from_text(text);
  if (!ramp) fail(kRecipeWhere, "expected ", WeightSchedule::kExpected, " in '", term, "', got '", text, "'");
  return *ramp;
}

void scale(WeightSchedule& ramp, double factor) {
  ramp.from *= factor;
  ramp.to *= factor;
}

/// The part of a term's text that says how much: one piece of it, between commas.
void read_part(const std::string& part, const std::string& text, Term::FromText& read,
               std::optional<WeightSchedule>& weight) {
  const size_t equals = part.find('=');
  if (equals == std::string::npos) {
    if (weight) fail(kRecipeWhere, "expected one weight in '", text, "', got '", part, "', too");
    weight = ramp_of(part, text);
    return;
  }
  const std::string key = part.substr(0, equals), value = part.substr(equals + 1);
  if (key == "alpha" && read.term.loss != "dkd") {
    if (read.labels) fail(kRecipeWhere, "expected one alpha in '", text, "', got '", value, "', too");
    const WeightSchedule alpha = ramp_of(value, text);
    if (!alpha.is_constant() || alpha.from < 0 || alpha.from > 1)
      fail(kRecipeWhere, "expected alpha in [0, 1] in '", text, "', got '", value, "'");
    read.labels = alpha.from;
  } else if (key == "T" && value.find('>') != std::string::npos) {
    read.term.temperature = ramp_of(value, text);
  } else {
    read.term.options += (read.term.options.empty() ? "" : ",") + part;
  }
}

}  // namespace

Term::FromText Term::from_text(const std::string& text) {
  FromText read;
  Term& term = read.term;
  const size_t at = text.find('@');
  const std::string what = text.substr(0, at);
  if (at != std::string::npos) {
    const std::string places = text.substr(at + 1);
    const size_t equals = places.find('=');
    term.student = places.substr(0, equals);
    term.teacher = equals == std::string::npos ? term.student : places.substr(equals + 1);
    if (term.student.empty()) fail(kRecipeWhere, "expected a place behind '@', got '", text, "'");
  }
  const size_t colon = what.find(':');
  term.loss = what.substr(0, colon);
  std::optional<WeightSchedule> weight;
  if (colon != std::string::npos) {
    for (const std::string& part : split(what.substr(colon + 1), ',')) read_part(part, text, read, weight);
  }
  if (weight) term.weight = *weight;
  scale(term.weight, 1 - read.labels.value_or(0));
  make_loss(term);
  return read;
}

std::string Term::describe() const {
  std::string text = loss;
  if (!options.empty()) text += " (" + options + ")";
  if (temperature) text += ", T " + temperature->text();
  text += " x " + weight.text();
  if (student.empty() && teacher.empty()) return text;
  text += " at " + (student.empty() ? "output" : student);
  return teacher == student ? text : text + " = " + (teacher.empty() ? "output" : teacher);
}

void Term::visit_fields(FieldVisitor& visit) {
  visit({"loss", "Name of the loss"}, loss);
  visit({.name = "options", .help = "Of the loss, as KEY=VALUE,...", .keep_empty = false}, options);
  visit({"weight", "What the loss is multiplied by"}, weight);
  visit({.name = "temperature", .help = "Along the run, of a loss that has one", .absent = ""}, temperature);
  visit({.name = "student", .help = "Place in the student", .keep_empty = false, .unset = "output"}, student);
  visit({.name = "teacher", .help = "Place in the teacher", .keep_empty = false, .unset = "output"}, teacher);
}

Recipe Recipe::from_terms(const std::vector<std::string>& texts) {
  Recipe recipe;
  recipe.terms.clear();
  std::optional<double> labels;
  for (const std::string& text : texts) {
    Term::FromText read = Term::from_text(text);
    if (read.labels && labels && *labels != *read.labels)
      fail(kRecipeWhere, "expected one alpha, got ", *labels, " and ", *read.labels);
    if (read.labels) labels = read.labels;
    recipe.terms.push_back(std::move(read.term));
  }
  recipe.labels = labels.value_or(1.0);
  return recipe;
}

void Recipe::visit_fields(FieldVisitor& visit) {
  visit({"terms", "What the student learns from its teacher"}, terms, Term{});
  visit({.name = "labels", .help = "Weight of the cross-entropy with the labels", .min = 0}, labels);
}

void Recipe::validate() const {
  check_limits(kRecipeWhere, *this);
  for (const Term& term : terms) {
    const auto loss = make_loss(term);
    if (term.weight.from < 0 || term.weight.to < 0)
      fail(kRecipeWhere, "expected a weight >= 0 of ", term.loss, ", got ", term.weight.text());
    if (!term.temperature) continue;
    if (!loss->set_temperature(1)) fail(kRecipeWhere, "expected a loss with a temperature, got ", term.loss);
    if (term.temperature->from <= 0 || term.temperature->to <= 0)
      fail(kRecipeWhere, "expected a temperature > 0 of ", term.loss, ", got ", term.temperature->text());
  }
  const bool learns =
      std::ranges::any_of(terms, [](const Term& t) { return t.weight.from > 0 || t.weight.to > 0; });
  if (!learns && labels == 0) fail(kRecipeWhere, "expected a loss or labels of a weight > 0, got none");
}

std::string Recipe::to_json() const {
  return write_recipe(*this, kVersion);
}

Recipe Recipe::from_json(const std::string& text) {
  Recipe recipe;
  read_recipe(text, recipe, kVersion);
  return recipe;
}

std::shared_ptr<Loss> make_loss(const Term& term) {
  return make_loss(term.loss, split(term.options, ','));
}

}  // namespace ulp::distill
