#include "ulp/runtime/plan/plan_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

using Json = nlohmann::json;

constexpr const char* kBatchWord = "batch";

Json shape_to_json(const std::vector<int64_t>& shape) {
  Json json = Json::array();
  for (const int64_t size : shape) {
    if (size == kBatch) {
      json.push_back(kBatchWord);
    } else {
      json.push_back(size);
    }
  }
  return json;
}

Json tensor_to_json(const TensorInfo& tensor, WrittenFields fields) {
  Json json = {
      {"name", tensor.name}, {"type", to_string(tensor.type)}, {"shape", shape_to_json(tensor.shape)}};
  if (tensor.layout != Layout::plain) json["layout"] = to_string(tensor.layout);
  if (tensor.type == DataType::u8) {
    json["scale"] = tensor.scale;
    json["zero_point"] = tensor.zero_point;
  }
  for (const auto& [name, count] : {std::pair{"times", tensor.times}, {"outer", tensor.outer}}) {
    if (count != 1 || fields == WrittenFields::all) json[name] = count;
  }
  return json;
}

Json step_to_json(const Step& step, WrittenFields fields) {
  Json json = {
      {"op", to_string(step.op)}, {"name", step.name}, {"inputs", step.inputs}, {"output", step.output}};
  if (!step.constants.empty()) json["constants"] = step.constants;
  json.update(std::visit(
      [&](const auto& held) {
        return fields == WrittenFields::all ? fields_to_json(held) : changed_fields_to_json(held);
      },
      step.attributes));
  return json;
}

/// An object being read: gives fields by name, with messages that say where, and refuses those outside
/// `known`.
class PlanReader {
 public:
  PlanReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) problem("expected ", where_, " to be an object, got ", json.type_name());
  }
  PlanReader(const Json& json, std::string where, std::initializer_list<const char*> known)
      : PlanReader(json, std::move(where)) {
    for (const auto& item : json.items()) {
      if (std::ranges::none_of(known, [&](const char* word) { return item.key() == word; })) {
        problem(where_, " has an unknown field '", item.key(), "'");
      }
    }
  }

  /// Null when absent.
  const Json* optional(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& required(const char* name) const {
    const Json* found = optional(name);
    if (found == nullptr) problem(where_, " has no field '", name, "'");
    return *found;
  }
  const Json& array(const char* name) const {
    const Json& value = required(name);
    if (!value.is_array()) expected(name, "an array", value);
    return value;
  }
  std::string text(const char* name) const { return text_of(name, required(name)); }
  std::string text_of(const char* name, const Json& value) const {
    if (!value.is_string()) expected(name, "a string", value);
    return value.get<std::string>();
  }
  template <typename Int>
  Int integer(const char* name, const Json& value) const {
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<Int>::max())
                          : value.is_number_integer() && std::in_range<Int>(value.get<int64_t>());
    if (!fits) expected(name, "an integer", value);
    return value.get<Int>();
  }
  std::map<std::string, std::string> texts(const char* name) const {
    std::map<std::string, std::string> all;
    const Json* value = optional(name);
    if (value == nullptr) return all;
    if (!value->is_object()) expected(name, "an object", *value);
    for (const auto& item : value->items()) all[item.key()] = text_of(name, item.value());
    return all;
  }
  [[noreturn]] void expected(const char* name, const char* what, const Json& got) const {
    std::string shown = got.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    problem("expected ", where_, " field '", name, "' to be ", what, ", got ", shown);
  }

 private:
  const Json& json_;
  std::string where_;
};

/// The first of `count` enumerators whose to_string() is the field's word.
template <typename Enum>
Enum enum_from(const PlanReader& reader, const char* field, int count) {
  const std::string word = reader.text(field);
  for (int i = 0; i < count; ++i) {
    if (word == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  reader.expected(field, "a known word", Json(word));
}

std::vector<int32_t> indices_from_json(const PlanReader& reader, const char* field) {
  std::vector<int32_t> indices;
  for (const Json& value : reader.array(field)) indices.push_back(reader.integer<int32_t>(field, value));
  return indices;
}

TensorInfo tensor_from_json(const Json& json, size_t index) {
  const PlanReader reader(json, "tensor " + std::to_string(index),
                          {"name", "type", "shape", "layout", "scale", "zero_point", "times", "outer"});
  TensorInfo tensor;
  tensor.name = reader.text("name");
  tensor.type = enum_from<DataType>(reader, "type", kDataTypeCount);
  for (const Json& size : reader.array("shape")) {
    tensor.shape.push_back(size == kBatchWord ? kBatch : reader.integer<int64_t>("shape", size));
    if (tensor.shape.back() == kBatch && size != kBatchWord)
      reader.expected("shape", "sizes or 'batch'", size);
  }
  if (reader.optional("layout") != nullptr) tensor.layout = enum_from<Layout>(reader, "layout", kLayoutCount);
  if (const Json* scale = reader.optional("scale")) {
    if (!scale->is_number()) reader.expected("scale", "a number", *scale);
    const double value = scale->get<double>();
    // Checked before narrowing: a double beyond float's range has no defined conversion.
    if (!(value > 0 && value <= std::numeric_limits<float>::max())) {
      reader.expected("scale", "a positive float", *scale);
    }
    tensor.scale = static_cast<float>(value);
  }
  if (const Json* zero = reader.optional("zero_point")) {
    tensor.zero_point = reader.integer<int32_t>("zero_point", *zero);
  }
  if (const Json* times = reader.optional("times")) tensor.times = reader.integer<int64_t>("times", *times);
  if (const Json* outer = reader.optional("outer")) tensor.outer = reader.integer<int64_t>("outer", *outer);
  return tensor;
}

/// The fields of a step beside the attributes of its op.
constexpr auto kStepFields = std::to_array<const char*>({"op", "name", "inputs", "output", "constants"});

Step step_from_json(const Json& json, size_t index) {
  const std::string where = "step " + std::to_string(index);
  const PlanReader reader(json, where);
  const std::string name = reader.text("name"), word = reader.text("op");
  const std::optional<Op> op = op_from_word(word);
  if (!op) problem(where, " '", name, "' has an unknown op '", word, "'");
  Step step{.op = *op, .name = name};
  step.inputs = indices_from_json(reader, "inputs");
  step.output = reader.integer<int32_t>("output", reader.required("output"));
  step.constants = reader.texts("constants");
  try {
    std::visit([&](auto& held) { fields_from_json(json, held, {}, kStepFields); }, step.attributes);
  } catch (const FieldProblem& found) {
    problem(where, " '", name, "' (", word, "): ", found.text);
  }
  return step;
}

/// A term is [numerator, denominator, power, power, ...].
Json polynomial_to_json(const Polynomial& polynomial) {
  Json json = Json::array();
  for (const Polynomial::Term& term : polynomial.terms) {
    Json one = {term.numerator, term.denominator};
    for (const int32_t power : term.powers) one.push_back(power);
    json.push_back(std::move(one));
  }
  return json;
}

Polynomial polynomial_from_json(const PlanReader& reader, const char* field, const Json& json) {
  if (!json.is_array()) reader.expected(field, "lists of terms", json);
  Polynomial polynomial;
  for (const Json& one : json) {
    if (!one.is_array() || one.size() < 2) reader.expected(field, "terms of two numbers and powers", one);
    Polynomial::Term term{reader.integer<int64_t>(field, one[0]), reader.integer<int64_t>(field, one[1]), {}};
    for (size_t i = 2; i < one.size(); ++i) term.powers.push_back(reader.integer<int32_t>(field, one[i]));
    polynomial.terms.push_back(std::move(term));
  }
  return polynomial;
}

Json batch_range_to_json(const BatchRange& range) {
  Json json = {{"min", range.min}};
  if (range.max != BatchRange::kAny) json["max"] = range.max;
  return json;
}

BatchRange batch_range_from_json(const Json& json) {
  const PlanReader reader(json, "the batch", {"min", "max"});
  BatchRange range{.min = reader.integer<int64_t>("min", reader.required("min"))};
  if (const Json* max = reader.optional("max")) range.max = reader.integer<int64_t>("max", *max);
  return range;
}

Json following_to_json(const SymbolicNumbers& following) {
  Json json = {{"free", Json::array()}, {"following", Json::array()}, {"corners", Json::object()}};
  for (const DynamicDimension& free : following.free) {
    json["free"].push_back(
        {{"name", free.name}, {"min", free.min}, {"max", free.max}, {"multiple", free.multiple}});
  }
  for (const SymbolicNumber& number : following.numbers) {
    json["following"].push_back({{"path", number.path}, {"value", polynomial_to_json(number.value)}});
    if (number.word >= 0) json["following"].back()["word"] = number.word;
  }
  for (const auto& [name, polynomials] : following.corners) {
    Json& sizes = json["corners"][name] = Json::array();
    for (const Polynomial& polynomial : polynomials) sizes.push_back(polynomial_to_json(polynomial));
  }
  return json;
}

SymbolicNumbers following_from_json(const Json& json) {
  const PlanReader plan(json, "the plan");
  SymbolicNumbers following;
  if (plan.optional("free") == nullptr) {
    for (const char* field : {"following", "corners"}) {
      if (plan.optional(field) != nullptr) problem("the plan has '", field, "' and no free dimensions");
    }
    return following;
  }
  for (const Json& one : plan.array("free")) {
    const PlanReader reader(one, "a free dimension", {"name", "min", "max", "multiple"});
    const auto number = [&](const char* field) {
      return reader.integer<int64_t>(field, reader.required(field));
    };
    following.free.push_back({reader.text("name"), number("min"), number("max"), number("multiple")});
  }
  for (const Json& one : plan.array("following")) {
    const PlanReader reader(one, "a number that follows", {"path", "value", "word"});
    following.numbers.push_back(
        {reader.text("path"), polynomial_from_json(reader, "value", reader.required("value"))});
    if (const Json* word = reader.optional("word"))
      following.numbers.back().word = reader.integer<int32_t>("word", *word);
  }
  const Json& corners = plan.required("corners");
  if (!corners.is_object()) plan.expected("corners", "an object", corners);
  for (const auto& item : corners.items()) {
    if (!item.value().is_array()) plan.expected("corners", "lists of sizes", item.value());
    std::vector<Polynomial>& sizes = following.corners[item.key()];
    for (const Json& size : item.value()) sizes.push_back(polynomial_from_json(plan, "corners", size));
  }
  return following;
}

}  // namespace

std::string attributes_text(const Attributes& attributes) {
  const Json changed = std::visit([](const auto& held) { return changed_fields_to_json(held); }, attributes);
  if (changed.empty()) return {};
  const Json flat = changed.flatten();
  std::ostringstream text;
  for (const auto& item : flat.items()) {
    std::string path = item.key().substr(1);
    std::ranges::replace(path, '/', '.');
    if (text.tellp() > 0) text << ", ";
    text << path << '=';
    const Json& value = item.value();
    if (value.is_string()) {
      text << value.get<std::string>();
    } else if (value.is_number_float()) {
      text << value.get<double>();
    } else {
      text << value.dump();
    }
  }
  return text.str();
}

Json numbers_to_json(const Plan& plan, WrittenFields fields) {
  Json json = {{"tensors", Json::array()},
               {"steps", Json::array()},
               {"inputs", plan.inputs},
               {"outputs", plan.outputs}};
  for (const TensorInfo& tensor : plan.tensors) json["tensors"].push_back(tensor_to_json(tensor, fields));
  for (const Step& step : plan.steps) json["steps"].push_back(step_to_json(step, fields));
  if (!plan.metadata.empty()) json["metadata"] = plan.metadata;
  if (!plan.continued.empty()) json["continued"] = plan.continued;
  if (plan.batch_range.bounded()) json["batch"] = batch_range_to_json(plan.batch_range);
  return json;
}

Plan plan_from_numbers(const Json& json) {
  const PlanReader reader(json, "the plan",
                          {"tensors", "steps", "inputs", "outputs", "metadata", "free", "following",
                           "corners", "continued", "batch"});
  Plan plan;
  for (const Json& tensor : reader.array("tensors")) {
    plan.tensors.push_back(tensor_from_json(tensor, plan.tensors.size()));
  }
  for (const Json& step : reader.array("steps")) {
    plan.steps.push_back(step_from_json(step, plan.steps.size()));
  }
  plan.inputs = indices_from_json(reader, "inputs");
  plan.outputs = indices_from_json(reader, "outputs");
  plan.metadata = reader.texts("metadata");
  if (reader.optional("continued") != nullptr) plan.continued = reader.text("continued");
  if (const Json* batch = reader.optional("batch")) plan.batch_range = batch_range_from_json(*batch);
  return plan;
}

std::string plan_to_json(const Plan& plan) {
  Json json = numbers_to_json(plan);
  if (!plan.following.free.empty()) json.update(following_to_json(plan.following));
  return json.dump();
}

Plan plan_from_json(const std::string& text) {
  try {
    const Json json = parse_json(text);
    Plan plan = plan_from_numbers(json);
    plan.following = following_from_json(json);
    if (!plan.continued.empty() && plan.following.free.empty())
      problem("runs continue along '", plan.continued, "', which is no free dimension");
    return plan;
  } catch (const nlohmann::json::exception& error) {
    problem("expected the plan as JSON, got: ", error.what());
  }
}

}  // namespace ulp::runtime
