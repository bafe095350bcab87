#include "ulp/runtime/plan/plan_json.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

using Json = nlohmann::json;

constexpr const char* kBatchWord = "batch";

// One list of the window's fields serves the writer and the reader.
template <typename W, typename Visit>
void visit_window(W& window, Visit visit) {
  visit("kernel_h", window.kernel_h);
  visit("kernel_w", window.kernel_w);
  visit("stride_h", window.stride_h);
  visit("stride_w", window.stride_w);
  visit("pad_h", window.pad_h);
  visit("pad_w", window.pad_w);
  visit("dilation_h", window.dilation_h);
  visit("dilation_w", window.dilation_w);
  visit("ceil_mode", window.ceil_mode);
  visit("count_include_pad", window.count_include_pad);
}

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

Json tensor_to_json(const TensorInfo& tensor) {
  Json json = {
      {"name", tensor.name}, {"type", to_string(tensor.type)}, {"shape", shape_to_json(tensor.shape)}};
  if (tensor.layout != Layout::plain) json["layout"] = to_string(tensor.layout);
  if (tensor.type == DataType::u8) {
    json["scale"] = tensor.scale;
    json["zero_point"] = tensor.zero_point;
  }
  return json;
}

Json window_to_json(const Window& window) {
  Json json = Json::object();
  std::vector<Json> defaults;
  const Window plain;
  visit_window(plain, [&](const char*, const auto& value) { defaults.emplace_back(value); });
  size_t at = 0;
  visit_window(window, [&](const char* name, const auto& value) {
    if (Json(value) != defaults[at++]) json[name] = value;
  });
  return json;
}

Json step_to_json(const Step& step) {
  Json json = {
      {"op", to_string(step.op)}, {"name", step.name}, {"inputs", step.inputs}, {"output", step.output}};
  if (!step.constants.empty()) json["constants"] = step.constants;
  if (step.window != Window{}) json["window"] = window_to_json(step.window);
  if (step.groups != 1) json["groups"] = step.groups;
  if (step.begin != 0) json["begin"] = step.begin;
  if (step.length != 0) json["length"] = step.length;
  if (step.heads != 1) json["heads"] = step.heads;
  if (step.scale != 1.0F) json["scale"] = step.scale;
  if (step.causal) json["causal"] = true;
  if (step.epsilon != 0.0F) json["epsilon"] = step.epsilon;
  if (step.token != 0) json["token"] = step.token;
  if (step.size_h != 0) json["size_h"] = step.size_h;
  if (step.size_w != 0) json["size_w"] = step.size_w;
  if (step.align_corners) json["align_corners"] = true;
  if (step.per_tensor) json["per_tensor"] = true;
  if (step.reverse) json["reverse"] = true;
  if (step.activation != Activation::none) json["activation"] = to_string(step.activation);
  return json;
}

/// An object being read: gives fields by name, with messages that say where, and refuses fields nobody knows.
class Reader {
 public:
  Reader(const Json& json, std::string where, std::initializer_list<const char*> known)
      : json_(json), where_(std::move(where)) {
    if (!json.is_object()) problem("expected ", where_, " to be an object, got ", json.type_name());
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
  /// Checked before narrowing: a double beyond float's range has no defined conversion.
  float real(const char* name, const Json& value) const {
    const double limit = std::numeric_limits<float>::max();
    if (!value.is_number() || !(value.get<double>() >= -limit && value.get<double>() <= limit)) {
      expected(name, "a number", value);
    }
    return static_cast<float>(value.get<double>());
  }
  bool flag(const char* name, const Json& value) const {
    if (!value.is_boolean()) expected(name, "true or false", value);
    return value.get<bool>();
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

/// The enumerator whose to_string() is `word`.
template <typename Enum>
Enum enum_from(const Reader& reader, const char* field, Enum last) {
  const std::string word = reader.text(field);
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (word == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  reader.expected(field, "a known word", Json(word));
}

std::vector<int32_t> indices_from_json(const Reader& reader, const char* field) {
  std::vector<int32_t> indices;
  for (const Json& value : reader.array(field)) indices.push_back(reader.integer<int32_t>(field, value));
  return indices;
}

TensorInfo tensor_from_json(const Json& json, size_t index) {
  const Reader reader(json, "tensor " + std::to_string(index),
                      {"name", "type", "shape", "layout", "scale", "zero_point"});
  TensorInfo tensor;
  tensor.name = reader.text("name");
  tensor.type = enum_from(reader, "type", DataType::i64);
  for (const Json& size : reader.array("shape")) {
    tensor.shape.push_back(size == kBatchWord ? kBatch : reader.integer<int64_t>("shape", size));
    if (tensor.shape.back() == kBatch && size != kBatchWord)
      reader.expected("shape", "sizes or 'batch'", size);
  }
  if (reader.optional("layout") != nullptr) tensor.layout = enum_from(reader, "layout", Layout::nhwc);
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
  return tensor;
}

Window window_from_json(const Json& json, const std::string& where) {
  const Reader reader(json, where + " window",
                      {"kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h",
                       "dilation_w", "ceil_mode", "count_include_pad"});
  Window window;
  visit_window(window, [&](const char* name, auto& value) {
    const Json* given = reader.optional(name);
    if (given == nullptr) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
      if (!given->is_boolean()) reader.expected(name, "true or false", *given);
      value = given->get<bool>();
    } else {
      value = reader.integer<int64_t>(name, *given);
    }
  });
  return window;
}

Step step_from_json(const Json& json, size_t index) {
  const std::string where = "step " + std::to_string(index);
  const Reader reader(
      json, where, {"op",         "name",       "inputs",  "output", "constants", "window",       "groups",
                    "activation", "begin",      "length",  "heads",  "scale",     "causal",       "epsilon",
                    "token",      "per_tensor", "reverse", "size_h", "size_w",    "align_corners"});
  Step step;
  step.name = reader.text("name");
  const std::string word = reader.text("op");
  const OpDef* def = find_op(word);
  if (def == nullptr) problem(where, " '", step.name, "' has an unknown op '", word, "'");
  step.op = def->op;
  step.inputs = indices_from_json(reader, "inputs");
  step.output = reader.integer<int32_t>("output", reader.required("output"));
  step.constants = reader.texts("constants");
  if (const Json* window = reader.optional("window")) step.window = window_from_json(*window, where);
  if (const Json* groups = reader.optional("groups")) {
    step.groups = reader.integer<int64_t>("groups", *groups);
  }
  if (const Json* begin = reader.optional("begin")) step.begin = reader.integer<int64_t>("begin", *begin);
  if (const Json* length = reader.optional("length"))
    step.length = reader.integer<int64_t>("length", *length);
  if (reader.optional("activation") != nullptr) {
    step.activation = enum_from(reader, "activation", Activation::tanh);
  }
  if (const Json* heads = reader.optional("heads")) step.heads = reader.integer<int64_t>("heads", *heads);
  if (const Json* token = reader.optional("token")) step.token = reader.integer<int64_t>("token", *token);
  if (const Json* size = reader.optional("size_h")) step.size_h = reader.integer<int64_t>("size_h", *size);
  if (const Json* size = reader.optional("size_w")) step.size_w = reader.integer<int64_t>("size_w", *size);
  if (const Json* corners = reader.optional("align_corners")) {
    step.align_corners = reader.flag("align_corners", *corners);
  }
  if (const Json* scale = reader.optional("scale")) step.scale = reader.real("scale", *scale);
  if (const Json* epsilon = reader.optional("epsilon")) step.epsilon = reader.real("epsilon", *epsilon);
  if (const Json* causal = reader.optional("causal")) step.causal = reader.flag("causal", *causal);
  if (const Json* per_tensor = reader.optional("per_tensor")) {
    step.per_tensor = reader.flag("per_tensor", *per_tensor);
  }
  if (const Json* reverse = reader.optional("reverse")) step.reverse = reader.flag("reverse", *reverse);
  return step;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json json = {{"tensors", Json::array()},
               {"steps", Json::array()},
               {"inputs", plan.inputs},
               {"outputs", plan.outputs}};
  for (const TensorInfo& tensor : plan.tensors) json["tensors"].push_back(tensor_to_json(tensor));
  for (const Step& step : plan.steps) json["steps"].push_back(step_to_json(step));
  if (!plan.metadata.empty()) json["metadata"] = plan.metadata;
  return json.dump();
}

Plan plan_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const Reader reader(json, "the plan", {"tensors", "steps", "inputs", "outputs", "metadata"});
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
    return plan;
  } catch (const nlohmann::json::exception& error) {
    problem("expected the plan as JSON, got: ", error.what());
  }
}

}  // namespace ulp::runtime
