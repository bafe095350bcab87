#include "ulp/quant/recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

using nlohmann::json;

constexpr const char* kType = "ulp.quant.Recipe";
constexpr std::array<const char*, 8> kOps = {"conv1d", "conv2d",  "conv3d",  "linear",
                                             "add",    "softmax", "sigmoid", "tanh"};

template <typename Enum>
struct Word {
  Enum value;
  const char* text;
};

constexpr std::array<Word<ObserverKind>, 7> kObservers = {{{ObserverKind::min_max, "min_max"},
                                                           {ObserverKind::moving_average, "moving_average"},
                                                           {ObserverKind::histogram, "histogram"},
                                                           {ObserverKind::percentile, "percentile"},
                                                           {ObserverKind::entropy, "entropy"},
                                                           {ObserverKind::mse, "mse"},
                                                           {ObserverKind::fixed, "fixed"}}};
constexpr std::array<Word<Backend>, 5> kBackends = {{{Backend::x86_int8, "x86_int8"},
                                                     {Backend::arm_int8, "arm_int8"},
                                                     {Backend::tflite_int8, "tflite_int8"},
                                                     {Backend::onnx_qdq, "onnx_qdq"},
                                                     {Backend::weight_only, "weight_only"}}};
constexpr std::array<Word<Mapping>, 2> kMappings = {
    {{Mapping::symmetric, "symmetric"}, {Mapping::affine, "affine"}}};
constexpr std::array<Word<Range>, 2> kRanges = {{{Range::full, "full"}, {Range::restricted, "restricted"}}};

// The one description of the fields: writing, reading and the check for unknown names all go through it.
template <typename Visitor>
void visit(Scheme& scheme, Visitor& v) {
  v("bits", scheme.bits);
  v("signed", scheme.is_signed);
  v("mapping", scheme.mapping, kMappings);
  v("range", scheme.range, kRanges);
  v("granularity", scheme.granularity);
}

template <typename Visitor>
void visit(TensorRecipe& recipe, Visitor& v) {
  v("observer", recipe.observer, kObservers);
  v("averaging_constant", recipe.averaging_constant);
  v("percentile", recipe.percentile);
  v("fixed_min", recipe.fixed_min);
  v("fixed_max", recipe.fixed_max);
  v("scheme", recipe.scheme);
}

template <typename Visitor>
void visit(Override& rule, Visitor& v) {
  v("op", rule.op);
  v("module", rule.module);
  v("value", rule.value);
  v("activation", rule.activation);
  v("weight", rule.weight);
}

template <typename Visitor>
void visit(Recipe& recipe, Visitor& v) {
  v("backend", recipe.backend, kBackends);
  v("activation", recipe.activation);
  v("weight", recipe.weight);
  v("ops", recipe.ops);
  v("skip_modules", recipe.skip_modules);
  v("skip_values", recipe.skip_values);
  v("overrides", recipe.overrides,
    Override{.op = {}, .module = {}, .value = {}, .activation = recipe.activation, .weight = recipe.weight});
}

json granularity_to_json(const Granularity& value) {
  if (const auto* channel = std::get_if<PerChannel>(&value)) return json{{"per_channel", channel->axis}};
  if (const auto* group = std::get_if<PerGroup>(&value)) return json{{"per_group", group->size}};
  if (const auto* block = std::get_if<PerBlock>(&value)) {
    return json{{"per_block", json::array({block->rows, block->columns})}};
  }
  return std::holds_alternative<PerToken>(value) ? "per_token" : "per_tensor";
}

constexpr const char* kGranularities =
    R"("per_tensor", {"per_channel": axis}, {"per_group": size}, "per_token" or {"per_block": [rows, columns]})";

// False for other JSON.
bool granularity_from_json(const json& in, Granularity& value) {
  if (in == "per_tensor") value = PerTensor{};
  if (in == "per_token") value = PerToken{};
  if (in == "per_tensor" || in == "per_token") return true;
  if (!in.is_object() || in.size() != 1) return false;
  const std::string kind = in.begin().key();
  const json& size = in.front();
  const auto whole = [](const json& number) { return number.is_number_integer(); };
  if (kind == "per_block") {
    if (!size.is_array() || size.size() != 2 || !std::all_of(size.begin(), size.end(), whole)) return false;
    value = PerBlock{size[0].get<int64_t>(), size[1].get<int64_t>()};
    return true;
  }
  if (!whole(size)) return false;
  if (kind == "per_channel") value = PerChannel{size.get<int64_t>()};
  if (kind == "per_group") value = PerGroup{size.get<int64_t>()};
  return kind == "per_channel" || kind == "per_group";
}

struct Writer {
  json out = json::object();

  void operator()(const char* name, const int64_t& value) { out[name] = value; }
  void operator()(const char* name, const bool& value) { out[name] = value; }
  void operator()(const char* name, const double& value) { out[name] = value; }
  void operator()(const char* name, const std::string& value) {
    if (!value.empty()) out[name] = value;
  }
  void operator()(const char* name, const std::vector<std::string>& value) { out[name] = value; }
  template <typename Struct>
  void operator()(const char* name, std::optional<Struct>& value) {
    if (value) (*this)(name, *value);
  }
  template <typename Struct>
  void operator()(const char* name, std::vector<Struct>& values, const Struct&) {
    out[name] = json::array();
    for (Struct& value : values) {
      Writer inner;
      visit(value, inner);
      out[name].push_back(inner.out);
    }
  }
  void operator()(const char* name, const Granularity& value) { out[name] = granularity_to_json(value); }
  template <typename Enum, size_t N>
  void operator()(const char* name, Enum value, const std::array<Word<Enum>, N>& words) {
    for (const auto& word : words) {
      if (word.value == value) out[name] = word.text;
    }
  }
  template <typename Struct>
  requires requires(Struct s, Writer w) { visit(s, w); }
  void operator()(const char* name, Struct& value) {
    Writer inner;
    visit(value, inner);
    out[name] = inner.out;
  }
};

// Reads the fields that are there, keeps the defaults of the others, and remembers the names it knows.
struct Reader {
  const json& in;
  std::string path;
  std::set<std::string> known;

  [[noreturn]] void wrong(const char* name, const char* expected) const {
    fail_file("quant.Recipe", "expected ", expected, " in '", path, name, "', got ", in.at(name).dump());
  }
  const json* find(const char* name) {
    known.insert(name);
    const auto found = in.find(name);
    return found == in.end() ? nullptr : &*found;
  }
  void operator()(const char* name, int64_t& value) {
    const json* field = find(name);
    if (field && !field->is_number_integer()) wrong(name, "a whole number");
    if (field) value = field->get<int64_t>();
  }
  void operator()(const char* name, bool& value) {
    const json* field = find(name);
    if (field && !field->is_boolean()) wrong(name, "true or false");
    if (field) value = field->get<bool>();
  }
  void operator()(const char* name, double& value) {
    const json* field = find(name);
    if (field && !field->is_number()) wrong(name, "a number");
    if (field) value = field->get<double>();
  }
  void operator()(const char* name, std::string& value) {
    const json* field = find(name);
    if (field && !field->is_string()) wrong(name, "a string");
    if (field) value = field->get<std::string>();
  }
  void operator()(const char* name, std::vector<std::string>& value) {
    const json* field = find(name);
    if (!field) return;
    const auto is_string = [](const json& item) { return item.is_string(); };
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_string))
      wrong(name, "a list of strings");
    value = field->get<std::vector<std::string>>();
  }
  void operator()(const char* name, Granularity& value) {
    const json* field = find(name);
    if (field && !granularity_from_json(*field, value)) wrong(name, kGranularities);
  }
  template <typename Enum, size_t N>
  void operator()(const char* name, Enum& value, const std::array<Word<Enum>, N>& words) {
    const json* field = find(name);
    if (!field) return;
    std::string choices;
    for (const auto& word : words) {
      if (*field == word.text) {
        value = word.value;
        return;
      }
      choices += (choices.empty() ? "" : " | ") + std::string(word.text);
    }
    wrong(name, choices.c_str());
  }
  template <typename Struct>
  requires requires(Struct s, Reader r) { visit(s, r); }
  void operator()(const char* name, Struct& value) {
    const json* field = find(name);
    if (!field) return;
    if (!field->is_object()) wrong(name, "an object");
    Reader inner{*field, path + name + ".", {}};
    visit(value, inner);
    inner.refuse_unknown();
  }
  template <typename Struct>
  void operator()(const char* name, std::optional<Struct>& value) {
    if (!find(name)) return value.reset();
    if (!value) value.emplace();
    (*this)(name, *value);
  }
  // Fields that an element does not have are the prototype's; optional ones stay empty then.
  template <typename Struct>
  void operator()(const char* name, std::vector<Struct>& values, const Struct& prototype) {
    const json* field = find(name);
    if (!field) return;
    values.clear();
    const auto is_object = [](const json& item) { return item.is_object(); };
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_object))
      wrong(name, "a list of objects");
    for (const json& item : *field) {
      Reader inner{item, path + name + "[" + std::to_string(values.size()) + "].", {}};
      visit(values.emplace_back(prototype), inner);
      inner.refuse_unknown();
    }
  }
  void refuse_unknown() const {
    for (const auto& [name, value] : in.items()) {
      if (!known.contains(name)) fail_file("quant.Recipe", "expected a known field, got '", path, name, "'");
    }
  }
};

// Glob with '*' only; a '*' also matches dots.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t i = 0; i <= text.size(); ++i) {
      if (matches(pattern.substr(1), text.substr(i))) return true;
    }
    return false;
  }
  return !text.empty() && pattern[0] == text[0] && matches(pattern.substr(1), text.substr(1));
}

void validate_activation(const TensorRecipe& recipe, const std::string& what) {
  recipe.validate(what.c_str());
  if (recipe.scheme.per_tensor()) return;
  fail("quant.Recipe", "expected ", what, " per tensor, got ", to_string(recipe.scheme.granularity));
}

void validate_weight(const TensorRecipe& recipe, const std::string& what) {
  const Scheme& scheme = recipe.scheme;
  recipe.validate(what.c_str());
  if (!scheme.per_tensor() && scheme.granularity != Granularity(PerChannel{0})) {
    fail("quant.Recipe", "expected ", what, " per tensor or per channel 0, got ",
         to_string(scheme.granularity));
  }
  if (scheme.mapping != Mapping::symmetric || !scheme.is_signed) {
    fail("quant.Recipe", "expected ", what, " signed and symmetric, got ", scheme.to_string());
  }
}

// The most particular override that matches: a value's before a module's before an op's, the last of equals.
const TensorRecipe& resolve(const Recipe& recipe, std::optional<TensorRecipe> Override::*field,
                            const TensorRecipe& otherwise, const OpName& name) {
  const TensorRecipe* found = &otherwise;
  int best = -1;
  for (const Override& rule : recipe.overrides) {
    const int rank = !rule.value.empty() ? 2 : !rule.module.empty() ? 1 : 0;
    if (!(rule.*field) || rank < best || !rule.matches(name)) continue;
    found = &*(rule.*field);
    best = rank;
  }
  return *found;
}

}  // namespace

bool matches_module(const std::string& pattern, const std::string& module) {
  for (size_t end = 0; end != std::string::npos;) {
    end = module.find('.', end + 1);
    if (matches(pattern, std::string_view(module).substr(0, end))) return true;
  }
  return false;
}

void TensorRecipe::validate(const char* what) const {
  try {
    scheme.validate();
  } catch (const Error& error) {
    fail("quant.Recipe", what, ": ", error.what());
  }
  const bool searches = observer == ObserverKind::percentile || observer == ObserverKind::entropy ||
                        observer == ObserverKind::mse;
  if (observer == ObserverKind::histogram && !scheme.per_tensor()) {
    fail("quant.Recipe", "expected an observer for channels in ", what, ", got a histogram");
  }
  if (searches && !scheme.per_tensor() && !scheme.per_channel()) {
    fail("quant.Recipe", "expected an observer of min and max in ", what, ' ', to_string(scheme.granularity),
         ", got one that keeps a histogram");
  }
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    fail("quant.Recipe", "expected ", what, ".averaging_constant in (0, 1], got ", averaging_constant);
  }
  if (!(percentile > 0 && percentile <= 100)) {
    fail("quant.Recipe", "expected ", what, ".percentile in (0, 100], got ", percentile);
  }
  if (observer == ObserverKind::fixed &&
      !(std::isfinite(fixed_min) && std::isfinite(fixed_max) && fixed_min < fixed_max)) {
    fail("quant.Recipe", "expected finite ", what, ".fixed_min < fixed_max, got ", fixed_min, " and ",
         fixed_max);
  }
}

Recipe Recipe::x86_int8() {
  Recipe recipe;
  recipe.activation = {.scheme = {}, .observer = ObserverKind::histogram};
  recipe.weight = {.scheme = {.is_signed = true,
                              .mapping = Mapping::symmetric,
                              .range = Range::restricted,
                              .granularity = PerChannel{0}},
                   .observer = ObserverKind::min_max};
  recipe.ops = {"conv1d", "conv2d", "conv3d", "linear", "add"};
  return recipe;
}

Recipe Recipe::arm_int8() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::arm_int8;
  return recipe;
}

Recipe Recipe::tflite_int8() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::tflite_int8;
  recipe.activation = {.scheme = {.is_signed = true}, .observer = ObserverKind::min_max};
  recipe.ops.assign(kOps.begin(), kOps.end());
  // (max - min) / 255 is 1/256 and 1/128 for these bounds.
  const auto ends_in = [&](const char* op, double min, double max) {
    TensorRecipe fixed = recipe.activation;
    fixed.observer = ObserverKind::fixed;
    fixed.fixed_min = min;
    fixed.fixed_max = max;
    recipe.overrides.push_back({.op = op, .module = {}, .value = {}, .activation = fixed, .weight = {}});
  };
  ends_in("softmax", 0, 255.0 / 256);
  ends_in("sigmoid", 0, 255.0 / 256);
  ends_in("tanh", -1, 127.0 / 128);
  return recipe;
}

Recipe Recipe::onnx_qdq() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::onnx_qdq;
  recipe.weight.scheme.range = Range::full;
  return recipe;
}

Recipe Recipe::weight_only() {
  Recipe recipe = x86_int8();
  recipe.backend = Backend::weight_only;
  recipe.weight.scheme.bits = 4;
  recipe.weight.scheme.granularity = PerGroup{32};
  return recipe;
}

const char* to_string(Backend backend) {
  return kBackends[static_cast<size_t>(backend)].text;
}

std::vector<std::string> recipe_profiles() {
  std::vector<std::string> names;
  for (const auto& backend : kBackends) names.emplace_back(backend.text);
  return names;
}

Recipe Recipe::profile(const std::string& name) {
  for (const Recipe& recipe : {x86_int8(), arm_int8(), tflite_int8(), onnx_qdq(), weight_only()}) {
    if (name == to_string(recipe.backend)) return recipe;
  }
  fail("quant.Recipe", "expected x86_int8, arm_int8, tflite_int8, onnx_qdq or weight_only, got '", name, "'");
}

void Recipe::validate() const {
  validate_activation(activation, "activation");
  if (backend == Backend::weight_only) {
    weight.validate("weight");  // its schemes are quantize_weights()'s to judge
    if (!overrides.empty())
      fail("quant.Recipe", "expected no overrides for weight_only, got ", overrides.size());
    return;
  }
  validate_weight(weight, "weight");
  for (size_t i = 0; i < overrides.size(); ++i) {
    const std::string name = "overrides[" + std::to_string(i) + "]";
    const Override& rule = overrides[i];
    if (rule.op.empty() && rule.module.empty() && rule.value.empty()) {
      fail("quant.Recipe", "expected ", name, " to name an op, a module or a value, got none");
    }
    if (rule.activation) validate_activation(*rule.activation, name + ".activation");
    if (rule.weight) validate_weight(*rule.weight, name + ".weight");
  }
  for (const auto& op : ops) {
    if (std::find(kOps.begin(), kOps.end(), op) == kOps.end()) {
      fail("quant.Recipe",
           "expected ops of conv1d, conv2d, conv3d, linear, add, softmax, sigmoid, tanh, got '", op, "'");
    }
  }
}

bool Override::matches(const OpName& name) const {
  return (op.empty() || quant::matches(op, name.op)) &&
         (module.empty() || matches_module(module, name.module)) &&
         (value.empty() || quant::matches(value, name.value));
}

const TensorRecipe& Recipe::activation_of(const OpName& name) const {
  return resolve(*this, &Override::activation, activation, name);
}

const TensorRecipe& Recipe::weight_of(const OpName& name) const {
  return resolve(*this, &Override::weight, weight, name);
}

bool Recipe::skips(const std::string& module) const {
  return std::any_of(skip_modules.begin(), skip_modules.end(),
                     [&](const std::string& pattern) { return matches_module(pattern, module); });
}

bool Recipe::skips(const OpName& name) const {
  return skips(name.module) ||
         std::find(skip_values.begin(), skip_values.end(), name.value) != skip_values.end();
}

std::string Recipe::to_json() const {
  Recipe copy = *this;
  Writer writer;
  visit(copy, writer);
  writer.out["type"] = kType;
  writer.out["version"] = kRecipeVersion;
  return writer.out.dump(2);
}

Recipe Recipe::from_json(const std::string& text) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object() || in.value("type", json()) != kType) {
    fail_file("quant.Recipe", "expected a JSON object with \"type\": \"", kType, "\"");
  }
  const json version = in.value("version", json());
  if (!version.is_number_integer() || version < 1 || version > kRecipeVersion) {
    fail_file("quant.Recipe", "expected a recipe of version 1 to ", kRecipeVersion, ", got ", version.dump());
  }
  Recipe recipe = x86_int8();
  Reader reader{in, "", {"type", "version"}};
  visit(recipe, reader);
  reader.refuse_unknown();
  recipe.validate();
  return recipe;
}

}  // namespace ulp::quant
