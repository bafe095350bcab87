// Described fields: limits, words, sentences on fields, JSON and back.
#include "ulp/base/fields.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "ulp/base/fields_json.h"

namespace {

enum class Shape { circle, square };

/// "red:3": a value with a text form.
struct Paint {
  static constexpr const char* kExpected = "red:N";
  int coats = 1;
  std::string text() const { return "red:" + std::to_string(coats); }
  static std::optional<Paint> from_text(const std::string& text) {
    if (text.size() != 5 || text.substr(0, 4) != "red:" || !std::isdigit(text[4])) return std::nullopt;
    return Paint{text[4] - '0'};
  }
};

/// An entry of a table.
struct City {
  static constexpr std::array<const char*, 2> kNames = {"Bonn", "Ulm"}, kHelp = {"old", "tall"};
  size_t row = 0;
  size_t index() const { return row; }
  static std::span<const char* const> choices() { return kNames; }
  static std::span<const char* const> choice_help() { return kHelp; }
  static City at(size_t index) { return {index}; }
};

}  // namespace

template <>
struct ulp::EnumNames<Shape> {
  static constexpr std::array<Word<Shape>, 2> list = {
      {{Shape::circle, "circle"}, {Shape::square, "square", "four corners"}}};
};

namespace {

using Json = nlohmann::json;
using ulp::FieldInfo;
using ulp::FieldProblem;
using ulp::FieldVisitor;

struct Part {
  double weight = 1;
  int32_t count = 2;
  void visit_fields(FieldVisitor& visitor) {
    visitor({.name = "weight", .min = 0, .above_min = true}, weight);
    visitor({.name = "count", .min = 1}, count);
  }
};

/// A field of every kind.
struct Everything {
  bool flag = true;
  int8_t tiny = -3;
  int64_t whole = 5;
  uint64_t seed = 1;
  float narrow = 0.5f;
  double share = 0.25;
  std::string name = "n", note = {};
  std::vector<std::string> names = {"a", "b"};
  Shape shape = Shape::square;
  City city = {};
  Paint paint = {};
  std::optional<double> rate = {};
  std::optional<Shape> other = {};
  Part part = {};
  std::vector<Part> parts = {};
  int raw = 7;

  void visit_fields(FieldVisitor& visitor) {
    visitor({.name = "flag"}, flag);
    visitor({.name = "tiny"}, tiny);
    visitor({.name = "whole", .min = 0}, whole);
    visitor({.name = "seed"}, seed);
    visitor({.name = "narrow"}, narrow);
    visitor({.name = "share", .min = 0, .max = 1, .below_max = true}, share);
    visitor({.name = "name"}, name);
    visitor({.name = "note", .keep_empty = false}, note);
    visitor({.name = "names"}, names);
    visitor({.name = "shape"}, shape);
    visitor({.name = "city"}, city);
    visitor({.name = "paint"}, paint);
    visitor({.name = "rate", .min = 0, .above_min = true}, rate);
    visitor({.name = "other", .absent = "none"}, other);
    visitor({.name = "part"}, part);
    visitor({.name = "parts"}, parts, Part{.weight = 9});
    const auto read = [&](const std::string& text) {
      const Json json = Json::parse(text);
      if (!json.is_number_integer()) return false;
      raw = json;
      return true;
    };
    visitor({.name = "raw"},
            {.write = [&] { return std::to_string(raw); }, .read = read, .expected = "a raw number"});
  }
};

const char* const kDefaults =
    R"({"city":"Bonn","flag":true,"name":"n","names":["a","b"],"narrow":0.5,"other":"none","paint":"red:1",)"
    R"("part":{"count":2,"weight":1.0},"parts":[],"raw":7,"seed":1,"shape":"square","share":0.25,"tiny":-3,)"
    R"("whole":5})";

/// What reading says of a text; empty when it is taken.
std::string problem(const std::string& text, bool limits = false) {
  Everything options;
  try {
    ulp::fields_from_json(Json::parse(text), options, "", {}, limits);
  } catch (const FieldProblem& found) {
    return found.text;
  }
  return "";
}

TEST(FieldInfo, LimitsHoldTheirEndsAndRefuseNaN) {
  const FieldInfo half_open{.name = "x", .min = 0, .max = 1, .below_max = true};
  EXPECT_TRUE(half_open.allows(0));
  EXPECT_FALSE(half_open.allows(1));
  EXPECT_FALSE(half_open.allows(-1e-300));
  EXPECT_FALSE(half_open.allows(std::nan("")));
  const FieldInfo above{.name = "x", .min = 0, .above_min = true};
  EXPECT_FALSE(above.allows(0));
  EXPECT_TRUE(above.allows(INFINITY));
  const FieldInfo finite{.name = "x", .min = 0, .below_max = true};
  EXPECT_TRUE(finite.allows(1e308));
  EXPECT_FALSE(finite.allows(INFINITY));
  EXPECT_TRUE(FieldInfo{.name = "x"}.allows(std::nan("")));
}

TEST(FieldInfo, LimitsAsText) {
  EXPECT_EQ(FieldInfo{.name = "x"}.limits(), "");
  EXPECT_EQ((FieldInfo{.name = "x", .min = 1}.limits()), ">= 1");
  EXPECT_EQ((FieldInfo{.name = "x", .min = 0, .above_min = true}.limits()), "> 0");
  EXPECT_EQ((FieldInfo{.name = "x", .max = 8}.limits()), "<= 8");
  EXPECT_EQ((FieldInfo{.name = "x", .max = 8, .below_max = true}.limits()), "< 8");
  EXPECT_EQ((FieldInfo{.name = "x", .min = 0, .max = 0.5, .above_min = true}.limits()), "in (0, 0.5]");
  EXPECT_EQ((FieldInfo{.name = "x", .min = -1, .max = 1, .below_max = true}.limits()), "in [-1, 1)");
}

TEST(Words, GoBothWays) {
  EXPECT_STREQ(ulp::enum_name(Shape::square), "square");
  EXPECT_STREQ(ulp::enum_name(static_cast<Shape>(9)), "unknown");
  EXPECT_EQ(ulp::from_word<Shape>("circle"), Shape::circle);
  EXPECT_FALSE(ulp::from_word<Shape>("Circle"));
  EXPECT_FALSE(ulp::from_word<Shape>(""));
  const char* const three[] = {"a", "b", "c"};
  EXPECT_EQ(ulp::one_of(three), "a, b or c");
  EXPECT_EQ(ulp::one_of(std::span(three, 1)), "a");
  EXPECT_EQ(ulp::one_of({}), "");
  EXPECT_EQ(ulp::require_word<Shape>("room.f", "a shape", "circle"), Shape::circle);
  EXPECT_EQ(ulp::test::error_of([] { ulp::require_word<Shape>("room.f", "a shape", "line"); }),
            "[room.f] expected a shape circle or square, got 'line'");
}

TEST(CheckLimits, NamesTheFieldWithItsPath) {
  const auto error = [](const auto& change, const char* path = "") {
    Everything options{.parts = {{}, {}}};
    change(options);
    return ulp::test::error_of([&] { ulp::check_limits("room.Options", options, path); });
  };
  EXPECT_NO_THROW(ulp::check_limits("room.Options", Everything{.rate = 1, .parts = {{}}}));
  EXPECT_EQ(error([](Everything& o) { o.whole = -2; }), "[room.Options] expected whole >= 0, got -2");
  EXPECT_EQ(error([](Everything& o) { o.share = 1; }, "top."),
            "[room.Options] expected top.share in [0, 1), got 1");
  EXPECT_EQ(error([](Everything& o) { o.share = std::nan(""); }),
            "[room.Options] expected share in [0, 1), got nan");
  EXPECT_EQ(error([](Everything& o) { o.rate = 0; }), "[room.Options] expected rate > 0, got 0");
  EXPECT_EQ(error([](Everything& o) { o.part.count = 0; }), "[room.Options] expected part.count >= 1, got 0");
  EXPECT_EQ(error([](Everything& o) { o.parts[1].weight = -1; }, "top."),
            "[room.Options] expected top.parts[1].weight > 0, got -1");
}

TEST(VisitSome, ShowsTheNamedFieldsAlone) {
  Everything options;
  const std::array names = {"whole", "shape", "paint", "part", "parts", "raw", "city", "other"};
  const auto some = [&](FieldVisitor& visitor) {
    ulp::visit_some(visitor, names, [&](FieldVisitor& inner) { options.visit_fields(inner); });
  };
  EXPECT_EQ(
      ulp::fields_to_json(some).dump(),
      R"({"city":"Bonn","other":"none","paint":"red:1","part":{"count":2,"weight":1.0},"parts":[],"raw":7,)"
      R"("shape":"square","whole":5})");
  ulp::fields_from_json(Json::parse(R"({"whole": 6, "part": {"count": 4}})"), "", some);
  EXPECT_EQ(options.whole, 6);
  EXPECT_EQ(options.part.count, 4);
  EXPECT_THROW(ulp::fields_from_json(Json::parse(R"({"seed": 6})"), "", some), FieldProblem);
}

TEST(FieldsJson, EveryKindIsWritten) {
  EXPECT_EQ(ulp::fields_to_json(Everything{}).dump(), kDefaults);
}

TEST(FieldsJson, EveryKindIsReadBack) {
  const Json json = {{"flag", false},
                     {"tiny", 100},
                     {"whole", int64_t{1} << 60},
                     {"seed", UINT64_MAX},
                     {"narrow", 0.125},
                     {"share", 0},
                     {"name", ""},
                     {"note", "hello"},
                     {"names", {"c"}},
                     {"shape", "circle"},
                     {"city", "Ulm"},
                     {"paint", "red:4"},
                     {"rate", 0.1},
                     {"other", "circle"},
                     {"part", {{"weight", 3.0}, {"count", 4}}},
                     {"parts", {{{"weight", 9.0}, {"count", 7}}, {{"weight", 5.0}, {"count", 2}}}},
                     {"raw", 8}};
  Everything options;
  ulp::fields_from_json(json, options);
  EXPECT_EQ(ulp::fields_to_json(options), json);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.city.row, 1u);
  EXPECT_EQ(options.paint.coats, 4);
}

TEST(FieldsJson, WhatJsonHasNotKeepsItsValue) {
  Everything options{.whole = 3, .rate = 0.5, .parts = {{.count = 8}}};
  ulp::fields_from_json(Json::parse(R"({"part": {"count": 6}})"), options);
  EXPECT_EQ(options.whole, 3);
  EXPECT_EQ(options.rate, 0.5);
  EXPECT_EQ(options.part.count, 6);
  EXPECT_EQ(options.part.weight, 1);
  ASSERT_EQ(options.parts.size(), 1u);
  EXPECT_EQ(options.parts[0].count, 8);
}

TEST(FieldsJson, ElementsOfAListStartAsThePrototype) {
  Everything options{.parts = {{.weight = 4}, {}}};
  ulp::fields_from_json(Json::parse(R"({"parts": [{"count": 6}]})"), options);
  ASSERT_EQ(options.parts.size(), 1u);
  EXPECT_EQ(options.parts[0].count, 6);
  EXPECT_EQ(options.parts[0].weight, 9);
}

TEST(FieldsJson, NullAndTheWordForItMakeAnOptionalAbsent) {
  Everything options{.rate = 0.5, .other = Shape::circle};
  ulp::fields_from_json(Json::parse(R"({"rate": null, "other": "none"})"), options);
  EXPECT_FALSE(options.rate);
  EXPECT_FALSE(options.other);
  EXPECT_EQ(problem(R"({"other": "line"})"), R"(expected circle or square in 'other', got "line")");
  EXPECT_EQ(problem(R"({"whole": null})"), "expected a whole number in 'whole', got null");
}

TEST(FieldsJson, WrongKindsNameTheField) {
  EXPECT_EQ(problem(R"({"flag": 1})"), "expected true or false in 'flag', got 1");
  EXPECT_EQ(problem(R"({"whole": 1.0})"), "expected a whole number in 'whole', got 1.0");
  EXPECT_EQ(problem(R"({"whole": "8"})"), R"(expected a whole number in 'whole', got "8")");
  EXPECT_EQ(problem(R"({"whole": 9223372036854775808})"),
            "expected a whole number in 'whole', got 9223372036854775808");
  EXPECT_EQ(problem(R"({"seed": -1})"), "expected a whole number >= 0 in 'seed', got -1");
  EXPECT_EQ(problem(R"({"share": true})"), "expected a number in 'share', got true");
  EXPECT_EQ(problem(R"({"name": 1})"), "expected a string in 'name', got 1");
  EXPECT_EQ(problem(R"({"names": ["a", 1]})"), "expected a list of strings in 'names', got an array");
  EXPECT_EQ(problem(R"({"shape": 1})"), "expected circle or square in 'shape', got 1");
  EXPECT_EQ(problem(R"({"city": "Paris"})"), R"(expected Bonn or Ulm in 'city', got "Paris")");
  EXPECT_EQ(problem(R"({"paint": "blue:1"})"), R"(expected red:N in 'paint', got "blue:1")");
  EXPECT_EQ(problem(R"({"part": []})"), "expected an object in 'part', got an array");
  EXPECT_EQ(problem(R"({"parts": [1]})"), "expected a list of objects in 'parts', got an array");
  EXPECT_EQ(problem(R"({"parts": {}})"), "expected a list of objects in 'parts', got an object");
  EXPECT_EQ(problem(R"({"raw": "x"})"), R"(expected a raw number in 'raw', got "x")");
  EXPECT_EQ(problem("[]"), "expected the text to be an object, got an array");
}

TEST(FieldsJson, UnknownFieldsAreRefusedWithTheirPath) {
  EXPECT_EQ(problem(R"({"colour": 1})"), "expected a known field, got 'colour'");
  EXPECT_EQ(problem(R"({"part": {"colour": 1}})"), "expected a known field, got 'part.colour'");
  EXPECT_EQ(problem(R"({"parts": [{}, {"colour": 1}]})"), "expected a known field, got 'parts[1].colour'");
  EXPECT_EQ(problem(R"({"parts": [{"count": "x"}]})"),
            R"(expected a whole number in 'parts[0].count', got "x")");
  const char* const also[] = {"colour"};
  Everything options;
  EXPECT_NO_THROW(ulp::fields_from_json(Json{{"colour", 1}}, options, "", also));
  try {
    ulp::fields_from_json(Json{{"tint", 1}}, options, "steps[2].", also);
    FAIL() << "it was taken";
  } catch (const FieldProblem& found) {
    EXPECT_EQ(found.text, "expected a known field, got 'steps[2].tint'");
  }
}

TEST(FieldsJson, ANarrowTypeIsNeverCutOff) {
  EXPECT_EQ(problem(R"({"tiny": 127})"), "");
  EXPECT_EQ(problem(R"({"tiny": 128})"), "expected a number in [-128, 127] in 'tiny', got 128");
  EXPECT_EQ(problem(R"({"part": {"count": 2147483648}})"),
            "expected a number in [-2147483648, 2147483647] in 'part.count', got 2147483648");
  EXPECT_NE(problem(R"({"narrow": 1e39})"), "");
  EXPECT_EQ(problem(R"({"narrow": -3e38})"), "");
}

TEST(FieldsJson, LimitsOfTheDescriptionCountWhenAsked) {
  EXPECT_EQ(problem(R"({"share": 1, "part": {"count": 0}})"), "");
  EXPECT_EQ(problem(R"({"share": 1})", true), "expected a number in [0, 1) in 'share', got 1");
  EXPECT_EQ(problem(R"({"rate": 0})", true), "expected a number > 0 in 'rate', got 0");
  EXPECT_EQ(problem(R"({"part": {"count": 0}})", true), "expected a number >= 1 in 'part.count', got 0");
  EXPECT_EQ(problem(R"({"parts": [{"weight": 0}]})", true),
            "expected a number > 0 in 'parts[0].weight', got 0");
}

TEST(FieldsJson, WritingChangesNothing) {
  static const Everything constant{.narrow = std::nanf("3"),
                                   .parts = {{}}};  // may lie in memory that is const
  EXPECT_TRUE(ulp::fields_to_json(constant)["narrow"].is_number());
  EXPECT_NO_THROW(ulp::check_limits("room", constant));
}

TEST(FieldsJson, TheDifferenceIsWhatWasChanged) {
  EXPECT_EQ(ulp::changed_fields_to_json(Everything{}), Json::object());
  Everything options{.note = "x", .rate = 2, .other = Shape::circle, .part = {.count = 6}};
  const Json changed = ulp::changed_fields_to_json(options);
  EXPECT_EQ(changed, Json::parse(R"({"note": "x", "rate": 2.0, "other": "circle", "part": {"count": 6}})"));
  Everything read;
  ulp::fields_from_json(changed, read);
  EXPECT_EQ(ulp::fields_to_json(read), ulp::fields_to_json(options));
}

TEST(FieldsJson, ValuesAreShownShort) {
  EXPECT_EQ(ulp::shown(Json(std::string(100, 'x'))), '"' + std::string(59, 'x') + "...");
  EXPECT_EQ(ulp::shown(Json("\xff")), "\"\\ufffd\"");
  EXPECT_EQ(ulp::shown(Json(1.5)), "1.5");
}

TEST(SpellFields, ReplacesFieldsInBraces) {
  const ulp::FieldConflict conflict{"{masters=split} needs {clip}, not {precision=O1:bf16}"};
  EXPECT_EQ(conflict.text(), "masters 'split' needs clip, not precision 'O1:bf16'");
  const auto flag = [](const std::string& name, const std::string& value) {
    return "--" + name + (value.empty() ? "" : " " + value);
  };
  EXPECT_EQ(ulp::spell_fields(conflict.sentence, flag),
            "--masters split needs --clip, not --precision O1:bf16");
  EXPECT_EQ(ulp::spell_fields("nothing here", flag), "nothing here");
  EXPECT_EQ(ulp::spell_fields("an open {brace", flag), "an open {brace");
}

}  // namespace
