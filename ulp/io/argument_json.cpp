#include "ulp/io/argument_json.h"

#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>

#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/io/size_json.h"

namespace ulp::io {

namespace {

using graph::Argument;
using graph::Node;
using Json = nlohmann::json;

/// Deeper arguments than any operator takes.
constexpr int kMostDeep = 16;

Json number(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto word = json.at("float").get<std::string>();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word != "inf" && word != "-inf") fail(kGraphFile, "expected nan, inf or -inf, got '", word, "'");
  return word == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Json literal_to_json(const c10::IValue& value, const Node& node) {
  if (value.isNone()) return nullptr;
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return number(value.toDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) return {{"device", value.toDevice().str()}};
  if (value.isIntList()) return {{"ints", value.toIntVector()}};
  if (value.isBoolList()) {
    Json flags = Json::array();
    for (const bool flag : value.toBoolList()) flags.push_back(flag);
    return {{"bools", std::move(flags)}};
  }
  if (value.isDoubleList()) {
    Json numbers = Json::array();
    for (const double one : value.toDoubleVector()) numbers.push_back(number(one));
    return {{"floats", std::move(numbers)}};
  }
  if (value.isTensor() && !value.toTensor().defined()) return {{"undefined", true}};
  fail(kGraphFile, "expected numbers, strings, devices and lists of numbers as arguments, got a ",
       value.tagKind(), " at '", node.name(), "' (", node.target(), ")");
}

c10::IValue literal_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return whole_number(json);
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.contains("float")) return number_of(json);
  if (json.contains("device")) return c10::Device(json.at("device").get<std::string>());
  if (json.contains("ints")) return whole_numbers(json.at("ints"));
  if (json.contains("undefined")) return at::Tensor();
  if (json.contains("bools")) {
    c10::List<bool> flags;
    for (const Json& flag : json.at("bools")) flags.push_back(flag.get<bool>());
    return flags;
  }
  std::vector<double> numbers;
  for (const Json& one : json.at("floats")) numbers.push_back(number_of(one));
  return numbers;
}

}  // namespace

Json argument_to_json(const Argument& argument, const Node& node) {
  const auto items = [&] {
    Json all = Json::array();
    for (const Argument& item : argument.items) all.push_back(argument_to_json(item, node));
    return all;
  };
  switch (argument.kind) {
    case Argument::Kind::literal:
      return literal_to_json(argument.literal, node);
    case Argument::Kind::value:
      return {{"value", argument.value->name}};
    case Argument::Kind::batch:
      return {{"size", size_to_json(argument.batch)}};
    case Argument::Kind::training:
      return {{"training", !argument.inverted}};
    case Argument::Kind::by_mode:
      return {{"by_mode", items()}};
    case Argument::Kind::dtype:
      return {{"dtype", items()}, {"at_capture", literal_to_json(argument.literal, node)}};
    case Argument::Kind::list:
      return {{"list", items()}};
    case Argument::Kind::tuple:
      return {{"tuple", items()}};
  }
  fail(kGraphFile, "expected a known kind of argument at '", node.name(), "'");
}

Argument argument_of(const Json& json, const Known& known, int depth) {
  if (depth > kMostDeep) fail(kGraphFile, "expected arguments at most ", kMostDeep, " deep");
  const auto items = [&](const char* kind) {
    std::vector<Argument> all;
    for (const Json& item : json.at(kind)) all.push_back(argument_of(item, known, depth + 1));
    return all;
  };
  if (!json.is_object()) return literal_of(json);
  if (json.contains("value")) {
    const auto name = json.at("value").get<std::string>();
    const auto found = known.values.find(name);
    if (found == known.values.end())
      fail(kGraphFile, "expected values that are made before they are read, got '", name, "'");
    return found->second;
  }
  if (json.contains("size")) return size_of(json.at("size"), known.free_dimensions);
  if (json.contains("training")) return Argument::training_flag(!json.at("training").get<bool>());
  if (json.contains("list")) return Argument::list(items("list"));
  if (json.contains("tuple")) return Argument::tuple(items("tuple"));
  if (json.contains("dtype")) {
    const std::vector<Argument> of = items("dtype");
    const Argument at_capture = literal_of(json.at("at_capture"));
    if (of.size() != 1 || !of[0].is_value() || !at_capture.literal.isInt())
      fail(kGraphFile, "expected the type of one value and what it was");
    return Argument::dtype_of(of[0].value, at_capture.literal);
  }
  if (!json.contains("by_mode")) return literal_of(json);
  std::vector<Argument> both = items("by_mode");
  if (both.size() != 2) fail(kGraphFile, "expected two arguments by mode, got ", both.size());
  Argument chosen = Argument::by_mode({}, {});
  chosen.items = std::move(both);
  return chosen;
}

namespace {

/// What an argument that is no literal is to an operator: a type, or a word for messages.
const char* word_of_kind(Argument::Kind kind) {
  switch (kind) {
    case Argument::Kind::value:
      return "a tensor";
    case Argument::Kind::batch:
      return "a size";
    case Argument::Kind::training:
      return "the training flag";
    case Argument::Kind::list:
      return "a list";
    case Argument::Kind::dtype:
      return "a dtype";
    default:
      return "an argument of another kind";
  }
}

bool takes_kind(c10::TypeKind wanted, Argument::Kind given) {
  const bool whole = wanted == c10::TypeKind::IntType || wanted == c10::TypeKind::SymIntType;
  switch (given) {
    case Argument::Kind::value:
      return wanted == c10::TypeKind::TensorType;
    case Argument::Kind::batch:
      return whole || wanted == c10::TypeKind::NumberType || wanted == c10::TypeKind::FloatType;
    case Argument::Kind::training:
      return wanted == c10::TypeKind::BoolType;
    case Argument::Kind::list:
      return wanted == c10::TypeKind::ListType;
    case Argument::Kind::dtype:
      return whole || wanted == c10::TypeKind::ScalarTypeType;
    default:
      return false;
  }
}

void check_literal(const c10::Argument& wanted, c10::TypePtr type, const Argument& given,
                   const std::string& node) {
  if (type->kind() == c10::TypeKind::OptionalType) {
    if (given.literal.isNone()) return;
    type = type->containedType(0);
    if (given.literal.isTensor() && type->kind() == c10::TypeKind::TensorType) return;
  }
  if (given.literal.isTensor())
    fail(kGraphFile, "expected a ", type->str(), " as '", wanted.name(), "' of '", node,
         "', got a tensor that is undefined");
  if (type->kind() == c10::TypeKind::FloatType && given.literal.isInt()) return;
  if (type->kind() == c10::TypeKind::NumberType && given.literal.isBool()) return;
  if (type->kind() == c10::TypeKind::GeneratorType && given.literal.isNone()) return;
  if (!given.literal.type()->isSubtypeOf(*type)) {
    fail(kGraphFile, "expected a ", type->str(), " as '", wanted.name(), "' of '", node, "', got a ",
         given.literal.type()->str());
  }
}

void check_as(const c10::Argument& wanted, const c10::TypePtr& type, const Argument& given,
              const std::string& node) {
  if (given.kind == Argument::Kind::literal) return check_literal(wanted, type, given, node);
  if (given.kind == Argument::Kind::by_mode) {
    for (const Argument& item : given.items) check_as(wanted, type, item, node);
    return;
  }
  if (type->kind() == c10::TypeKind::OptionalType)
    return check_as(wanted, type->containedType(0), given, node);
  if (!takes_kind(type->kind(), given.kind))
    fail(kGraphFile, "expected a ", type->str(), " as '", wanted.name(), "' of '", node, "', got ",
         word_of_kind(given.kind));
  if (given.kind != Argument::Kind::list) return;
  for (const Argument& item : given.items) check_as(wanted, type->containedType(0), item, node);
}

}  // namespace

void check_argument(const c10::Argument& wanted, const Argument& given, const std::string& node) {
  check_as(wanted, wanted.type(), given, node);
}

}  // namespace ulp::io
