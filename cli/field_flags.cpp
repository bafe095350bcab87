#include "cli/field_flags.h"

#include <algorithm>
#include <cerrno>
#include <map>

namespace ulp::cli {

std::string flag_of(const FieldInfo& info) {
  std::string name = info.flag != nullptr ? info.flag : info.name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name.empty() ? name : "--" + name;
}

namespace {

std::string spell_flags(const std::string& sentence, const std::map<std::string, std::string>& flags) {
  return spell_fields(sentence, [&](const std::string& name, const std::string& value) {
    return flags.at(name) + (value.empty() ? "" : ' ' + value);
  });
}

/// Visits fields that take one value; the others have no flags.
class FlagVisitor : public FieldVisitor {
 protected:
  using FieldVisitor::on;
  void on(const FieldInfo&, std::vector<std::string>&) override {}
  void on_group(const FieldInfo&, const GroupField&) override {}
  void on_list(const FieldInfo&, const ListField&) override {}
  void on_custom(const FieldInfo&, const CustomField&) override {}
};

/// Flags by field name.
class FlagNames final : public FlagVisitor {
 public:
  std::map<std::string, std::string> flags;

 protected:
  using FlagVisitor::on;
  void on(const FieldInfo& info, bool&) override { add(info); }
  void on(const FieldInfo& info, int64_t&) override { add(info); }
  void on(const FieldInfo& info, uint64_t&) override { add(info); }
  void on(const FieldInfo& info, double&) override { add(info); }
  void on(const FieldInfo& info, std::string&) override { add(info); }
  void on_choice(const FieldInfo& info, ChoiceField&) override { add(info); }
  void on_optional(const FieldInfo& info, const OptionalField&) override { add(info); }

 private:
  void add(const FieldInfo& info) { flags[info.name] = flag_of(info); }
};

/// Sets one field from the text behind its flag.
class FieldSetter final : public FlagVisitor {
 public:
  FieldSetter(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {}

 protected:
  using FlagVisitor::on;
  void on(const FieldInfo& info, bool& value) override {
    if (is(info)) value = text_ == "true";
  }
  void on(const FieldInfo& info, int64_t& value) override { set_number(info, value); }
  void on(const FieldInfo& info, uint64_t& value) override { set_number(info, value); }
  void on(const FieldInfo& info, double& value) override { set_number(info, value); }
  void on(const FieldInfo& info, std::string& value) override {
    if (is(info)) value = text_;
  }
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    if (!is(info)) return;
    const auto found = std::find(field.words.begin(), field.words.end(), text_);
    if (found == field.words.end()) refuse(info, one_of(field.words));
    field.index = static_cast<size_t>(found - field.words.begin());
  }
  void on_text(const FieldInfo& info, const TextField& field) override {
    if (is(info) && !field.set(text_)) refuse(info, field.expected);
  }
  void on_optional(const FieldInfo& info, const OptionalField& field) override {
    if (!is(info)) return;
    field.set(true);
    field.value(*this);
  }

 private:
  bool is(const FieldInfo& info) const { return name_ == info.name; }
  template <typename Number>
  void set_number(const FieldInfo& info, Number& value) const {
    if (!is(info)) return;
    const std::string expected = read_number(info, text_, value);
    if (!expected.empty()) refuse(info, expected);
  }
  [[noreturn]] void refuse(const FieldInfo& info, const std::string& expected) const {
    throw CLI::ValidationError(flag_of(info), "expected " + expected + ", got " + text_);
  }

  std::string name_, text_;
};

/// Adds the flags.
class FlagAdder final : public FlagVisitor {
 public:
  FlagAdder(CLI::App& command, const VisitFields& fields) : command_(command), fields_(fields) {
    fields_(names_);
  }

 protected:
  using FlagVisitor::on;
  void on(const FieldInfo& info, bool& value) override {
    const std::string flag = flag_of(info);
    if (flag.empty()) return;
    const auto set = [fields = fields_, name = info.name](int64_t count) {
      FieldSetter setter(name, count > 0 ? "true" : "false");
      fields(setter);
    };
    const std::string both = value ? flag + ",!--no-" + flag.substr(2) : flag;
    command_.add_flag_function(both, set, help(info) + (value ? " (default: on)" : ""));
  }
  void on(const FieldInfo& info, int64_t& value) override { add(info, "INT", std::to_string(value)); }
  void on(const FieldInfo& info, uint64_t& value) override { add(info, "UINT", std::to_string(value)); }
  void on(const FieldInfo& info, double& value) override {
    add(info, "FLOAT", CLI::detail::to_string(value));
  }
  void on(const FieldInfo& info, std::string& value) override { add(info, "TEXT", value); }
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    std::string words, lines;
    for (size_t i = 0; i < field.words.size(); ++i) {
      words.append(i > 0 ? "," : "").append(field.words[i]);
      if (*field.help[i] != 0) lines.append("\n").append(field.words[i]).append(": ").append(field.help[i]);
    }
    const std::string now = field.index < field.words.size() ? field.words[field.index] : "";
    add(info, "TEXT:{" + words + '}', now, lines);
  }
  void on_text(const FieldInfo& info, const TextField& field) override {
    add(info, "TEXT", field.text, std::string(" ") + field.expected);
  }
  void on_optional(const FieldInfo&, const OptionalField& field) override {
    absent_ = !field.present;
    field.set(true);  // to see what kind it is
    field.value(*this);
    if (absent_) field.set(false);
    absent_ = false;
  }

 private:
  std::string help(const FieldInfo& info) const { return spell_flags(info.help, names_.flags); }

  void add(const FieldInfo& info, const std::string& type, const std::string& value,
           const std::string& lines = {}) {
    const std::string flag = flag_of(info);
    if (flag.empty()) return;
    const bool unset = absent_ || value.empty();
    std::string text = help(info);
    if (unset && *info.unset != 0) text.append(" (default: ").append(info.unset).append(")");
    if (!lines.empty()) text.append(":").append(lines);
    const auto set = [fields = fields_, name = info.name](const std::string& given) {
      FieldSetter setter(name, given);
      fields(setter);
    };
    CLI::Option* option = command_.add_option_function<std::string>(flag, set, text)->type_name(type);
    if (!unset) option->default_str(value);
  }

  CLI::App& command_;
  VisitFields fields_;
  FlagNames names_;
  bool absent_ = false;
};

}  // namespace

void add_field_flags(CLI::App& command, const VisitFields& fields) {
  FlagAdder adder(command, fields);
  fields(adder);
}

std::string in_flags(const FieldConflict& conflict, const VisitFields& fields) {
  FlagNames names;
  fields(names);
  return spell_flags(conflict.sentence, names.flags);
}

}  // namespace ulp::cli
