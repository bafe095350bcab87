#include "cli/recipe_flags.h"

#include <algorithm>
#include <type_traits>

#include "cli/field_flags.h"
#include "ulp/base/error.h"

namespace ulp::cli {

/// Adds a flag for each field that it visits.
class RecipeFlagAdder final : public FieldVisitor {
 public:
  RecipeFlagAdder(RecipeFlags& flags, CLI::App& command, const std::string& title, const std::string& list,
                  const std::vector<std::string>& open, nlohmann::json::json_pointer path)
      : flags_(flags), command_(command), title_(title), list_(list), open_(open), path_(std::move(path)) {}

 protected:
  void on(const FieldInfo& info, bool& value) override {
    RecipeFlags::Flag* flag = start(info, value);
    if (flag == nullptr) return;
    const std::string off = value ? ",!--no-" + flag->name.substr(2) : "";
    flag->option = command_.add_flag(flag->name + off, std::get<bool>(flag->value), info.help)->group(title_);
  }
  void on(const FieldInfo& info, int64_t& value) override { number(info, value); }
  void on(const FieldInfo& info, uint64_t& value) override { number(info, value); }
  void on(const FieldInfo& info, double& value) override { number(info, value); }
  void on(const FieldInfo& info, std::string& value) override { plain(info, value); }
  void on(const FieldInfo& info, std::vector<std::string>& value) override {
    CLI::Option* option = plain(info, value);
    if (option == nullptr) return;
    option->allow_extra_args(false);
    if (!flags_.whole_.contains(info.name)) option->delimiter(',');
  }
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    std::string word = field.words[field.index];
    if (share_list(info, field)) return;
    if (CLI::Option* option = plain(info, word)) {
      option->check(CLI::IsMember(std::vector<std::string>(field.words.begin(), field.words.end())));
    }
  }
  void on_group(const FieldInfo& info, const GroupField& field) override {
    if (std::ranges::find(open_, info.name) == open_.end()) return;
    RecipeFlagAdder inner(flags_, command_, title_, list_, open_, path_ / info.name);
    field.fields(inner);
  }
  /// An absent one has no flag: there is no default to show.
  void on_optional(const FieldInfo&, const OptionalField& field) override {
    if (field.present) field.value(*this);
  }
  void on_list(const FieldInfo&, const ListField&) override {}
  void on_custom(const FieldInfo&, const CustomField&) override {}

 private:
  /// True where a list of texts has the flag: of this list of fields it takes one word.
  bool share_list(const FieldInfo& info, const ChoiceField& field) {
    for (RecipeFlags::Flag& flag : flags_.flags_) {
      if (flag.name != flag_of(info) || !std::holds_alternative<std::vector<std::string>>(flag.value))
        continue;
      flag.fields[list_] = path_ / info.name;
      flag.words[list_].assign(field.words.begin(), field.words.end());
      flag.option->description(flag.option->get_description() + ". With " + flags_.chooser_ + ' ' + list_ +
                               " one of " + CLI::detail::join(flag.words[list_], ", ") + ": " + info.help);
      return true;
    }
    return false;
  }
  /// A new flag for the field, or null where it has none, and where another list has one of the name, which the two share then.
  template <typename Value>
  RecipeFlags::Flag* start(const FieldInfo& info, const Value& value) {
    const std::string name = flag_of(info);
    if (name.empty()) return nullptr;
    for (RecipeFlags::Flag& flag : flags_.flags_) {
      if (flag.name != name) continue;
      if (flag.fields.contains(list_))
        fail("cli.RecipeFlags", "expected flags of their own for all fields of '", list_, "', got two of ",
             name);
      flag.fields[list_] = path_ / info.name;
      return nullptr;
    }
    RecipeFlags::Flag& flag = flags_.flags_.emplace_back(RecipeFlags::Flag{.name = name, .value = value});
    flag.fields[list_] = path_ / info.name;
    return &flag;
  }
  template <typename Value>
  CLI::Option* plain(const FieldInfo& info, const Value& value) {
    RecipeFlags::Flag* flag = start(info, value);
    if (flag == nullptr) return nullptr;
    flag->option = command_.add_option(flag->name, std::get<Value>(flag->value), info.help)->group(title_);
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      flag->option->default_str(CLI::detail::join(value, ","));
    } else {
      flag->option->capture_default_str();
    }
    return flag->option;
  }
  template <typename Value>
  void number(const FieldInfo& info, const Value& value) {
    CLI::Option* option = plain(info, value);
    if (option == nullptr) return;
    option->check(number_check<Value>(info));
  }

  RecipeFlags& flags_;
  CLI::App& command_;
  const std::string& title_;
  const std::string& list_;
  const std::vector<std::string>& open_;
  nlohmann::json::json_pointer path_;
};

void RecipeFlags::add(CLI::App& command, const std::string& list, const std::string& title,
                      FunctionRef<void(FieldVisitor&)> fields, const std::vector<std::string>& open) {
  RecipeFlagAdder adder(*this, command, title, list, open, nlohmann::json::json_pointer());
  fields(adder);
}

nlohmann::json RecipeFlags::given(const std::string& list) const {
  nlohmann::json all = nlohmann::json::object();
  for (const Flag& flag : flags_) {
    if (flag.option->count() == 0) continue;
    const auto field = flag.fields.find(list);
    if (field == flag.fields.end()) {
      std::string lists;
      for (const auto& [name, path] : flag.fields) lists += (lists.empty() ? "" : ", ") + name;
      throw CLI::ValidationError(
          flag.name, std::string("is for ") + chooser_ + ' ' + lists + ", got " + chooser_ + ' ' + list);
    }
    put(flag, list, all[field->second]);
  }
  return all;
}

void RecipeFlags::put(const Flag& flag, const std::string& list, nlohmann::json& field) {
  const auto words = flag.words.find(list);
  if (words == flag.words.end()) return std::visit([&](const auto& value) { field = value; }, flag.value);
  const auto& given = std::get<std::vector<std::string>>(flag.value);
  if (given.size() != 1 || std::ranges::find(words->second, given[0]) == words->second.end())
    throw CLI::ValidationError(flag.name, "expected one of " + CLI::detail::join(words->second, ", ") +
                                              ", got " + CLI::detail::join(given, ","));
  field = given[0];
}

}  // namespace ulp::cli
