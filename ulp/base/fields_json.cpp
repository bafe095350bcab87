#include "ulp/base/fields_json.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace ulp {

namespace {

using Json = nlohmann::json;

/// How JSON says that a value is absent.
Json absent_json(const FieldInfo& info) {
  if (info.absent == nullptr || std::string_view(info.absent) == "null") return nullptr;
  return info.absent;
}

class FieldWriter final : public FieldVisitor {
 public:
  Json out = Json::object();

 protected:
  void on(const FieldInfo& info, bool& value) override { out[info.name] = value; }
  void on(const FieldInfo& info, int64_t& value) override { out[info.name] = value; }
  void on(const FieldInfo& info, uint64_t& value) override { out[info.name] = value; }
  void on(const FieldInfo& info, double& value) override { out[info.name] = value; }
  void on(const FieldInfo& info, std::string& value) override {
    if (info.keep_empty || !value.empty()) out[info.name] = value;
  }
  void on(const FieldInfo& info, std::vector<std::string>& value) override { out[info.name] = value; }
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    if (field.index < field.words.size()) out[info.name] = field.words[field.index];
  }
  void on_group(const FieldInfo& info, const GroupField& field) override {
    FieldWriter inner;
    field.fields(inner);
    out[info.name] = std::move(inner.out);
  }
  void on_optional(const FieldInfo& info, const OptionalField& field) override {
    if (field.present) {
      field.value(*this);
    } else if (info.absent != nullptr && *info.absent != '\0') {
      out[info.name] = absent_json(info);
    }
  }
  void on_list(const FieldInfo& info, const ListField& field) override {
    Json all = Json::array();
    for (size_t i = 0; i < field.size; ++i) {
      FieldWriter inner;
      field.element(i, inner);
      all.push_back(std::move(inner.out));
    }
    out[info.name] = std::move(all);
  }
  void on_custom(const FieldInfo& info, const CustomField& field) override {
    out[info.name] = Json::parse(field.write());
  }
};

class FieldReader final : public FieldVisitor {
 public:
  FieldReader(const Json& in, std::string path, bool limits)
      : in_(in), path_(std::move(path)), limits_(limits) {}

  void read(FunctionRef<void(FieldVisitor&)> fields, std::span<const char* const> also) {
    if (!in_.is_object()) {
      throw FieldProblem{"expected " +
                         (path_.empty() ? "the text" : "'" + path_.substr(0, path_.size() - 1) + "'") +
                         " to be an object, got " + shown(in_)};
    }
    fields(*this);
    for (const char* name : also) known_.insert(name);
    for (const auto& item : in_.items()) {
      if (!known_.contains(item.key())) {
        throw FieldProblem{"expected a known field, got '" + path_ + item.key() + "'"};
      }
    }
  }

 protected:
  void on(const FieldInfo& info, bool& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_boolean()) wrong(info, "true or false");
    value = field->get<bool>();
  }
  void on(const FieldInfo& info, int64_t& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    const bool fits = field->is_number_unsigned() ? std::in_range<int64_t>(field->get<uint64_t>())
                                                  : field->is_number_integer();
    if (!fits) wrong(info, "a whole number");
    check(info, static_cast<double>(field->get<int64_t>()));
    value = field->get<int64_t>();
  }
  void on(const FieldInfo& info, uint64_t& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_number_unsigned()) wrong(info, "a whole number >= 0");
    check(info, static_cast<double>(field->get<uint64_t>()));
    value = field->get<uint64_t>();
  }
  void on(const FieldInfo& info, double& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_number()) wrong(info, "a number");
    check(info, field->get<double>());
    value = field->get<double>();
  }
  void on(const FieldInfo& info, std::string& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_string()) wrong(info, "a string");
    value = field->get<std::string>();
  }
  void on(const FieldInfo& info, std::vector<std::string>& value) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    const auto is_string = [](const Json& item) { return item.is_string(); };
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_string)) {
      wrong(info, "a list of strings");
    }
    value = field->get<std::vector<std::string>>();
  }
  void on_choice(const FieldInfo& info, ChoiceField& choice) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    for (size_t i = 0; i < choice.words.size(); ++i) {
      if (*field == choice.words[i]) {
        choice.index = i;
        return;
      }
    }
    wrong(info, one_of(choice.words));
  }
  void on_text(const FieldInfo& info, const TextField& text) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_string() || !text.set(field->get<std::string>())) wrong(info, text.expected);
  }
  void on_group(const FieldInfo& info, const GroupField& group) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    if (!field->is_object()) wrong(info, "an object");
    FieldReader(*field, path_ + info.name + ".", limits_).read(group.fields, {});
  }
  void on_optional(const FieldInfo& info, const OptionalField& optional) override {
    const Json* field = find(info);
    if (field == nullptr) {
      if (info.absent != nullptr && *info.absent == '\0') optional.set(false);
      return;
    }
    const bool present = !field->is_null() && *field != absent_json(info);
    optional.set(present);
    if (present) optional.value(*this);
  }
  void on_list(const FieldInfo& info, const ListField& list) override {
    const Json* field = find(info);
    if (field == nullptr) return;
    const auto is_object = [](const Json& item) { return item.is_object(); };
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_object)) {
      wrong(info, "a list of objects");
    }
    list.resize(field->size());
    for (size_t i = 0; i < field->size(); ++i) {
      const std::string path = path_ + info.name + "[" + std::to_string(i) + "].";
      FieldReader((*field)[i], path, limits_).read([&](FieldVisitor& inner) { list.element(i, inner); }, {});
    }
  }
  void on_custom(const FieldInfo& info, const CustomField& custom) override {
    const Json* field = find(info);
    if (field != nullptr && !custom.read(field->dump(-1, ' ', true, Json::error_handler_t::replace))) {
      wrong(info, custom.expected);
    }
  }

 private:
  const Json* find(const FieldInfo& info) {
    known_.insert(info.name);
    const auto found = in_.find(info.name);
    return found == in_.end() ? nullptr : &*found;
  }
  [[noreturn]] void wrong(const FieldInfo& info, const std::string& expected) const {
    throw FieldProblem{"expected " + expected + " in '" + path_ + info.name + "', got " +
                       shown(in_.at(info.name))};
  }
  /// What the type cannot hold is always refused: nothing may be cut off.
  void check(const FieldInfo& info, double value) const {
    if (!info.holds(value)) wrong(info, "a number " + info.type_limits());
    if (limits_ && !info.allows(value)) wrong(info, "a number " + info.limits());
  }

  const Json& in_;
  std::string path_;
  bool limits_;
  std::set<std::string> known_;
};

}  // namespace

Json fields_to_json(FunctionRef<void(FieldVisitor&)> fields) {
  FieldWriter writer;
  fields(writer);
  return std::move(writer.out);
}

void fields_from_json(const Json& json, const std::string& path, FunctionRef<void(FieldVisitor&)> fields,
                      std::span<const char* const> also, bool limits) {
  FieldReader(json, path, limits).read(fields, also);
}

Json json_difference(const Json& json, const Json& plain) {
  Json out = Json::object();
  for (const auto& [name, value] : json.items()) {
    const auto other = plain.find(name);
    if (other == plain.end()) {
      out[name] = value;
    } else if (value.is_object() && other->is_object()) {
      Json inner = json_difference(value, *other);
      if (!inner.empty()) out[name] = std::move(inner);
    } else if (value != *other) {
      out[name] = value;
    }
  }
  return out;
}

std::string shown(const Json& value) {
  if (value.is_structured()) return std::string("an ") + value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace ulp
