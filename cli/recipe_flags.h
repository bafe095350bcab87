// The flags of recipes, from their described fields (ulp/base/fields.h). A recipe may come from a file that
// is read later, so what was given is kept as JSON, to be put over the recipe's own fields.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ulp/base/fields.h"

namespace ulp::cli {

/// The flags of several lists of fields, each under a title; lists may share flags of one name and kind. A
/// field of one word may share the flag of a list of texts that came before it.
class RecipeFlags {
 public:
  /// `chooser` is the flag that says which list is used, for messages.
  explicit RecipeFlags(const char* chooser = "--mode") : chooser_(chooser) {}
  /// Adds the flags of a list to the command; the help has them under this title. Fields of the groups in
  /// `open` are taken, too; other groups, lists and fields with a JSON form of their own have no flags.
  void add(CLI::App& command, const std::string& list, const std::string& title,
           FunctionRef<void(FieldVisitor&)> fields, const std::vector<std::string>& open = {});

  /// Lists of this name hold texts with commas: each is given by a flag of its own. To be called before add().
  void keep_whole(const std::string& field) { whole_.insert(field); }

  /// What was given for the fields of this list. Throws CLI::ValidationError for a flag of other lists alone.
  nlohmann::json given(const std::string& list) const;

 private:
  friend class RecipeFlagAdder;
  struct Flag {
    std::string name;  ///< "--max-steps"
    std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<std::string>> value;
    CLI::Option* option = nullptr;
    std::map<std::string, nlohmann::json::json_pointer> fields =
        {};  ///< by list: where it stands in the JSON
    /// By list: the words of which the field holds one, where the flag takes several for other lists.
    std::map<std::string, std::vector<std::string>> words = {};
  };

  /// Puts what the flag has into a field of the list.
  static void put(const Flag& flag, const std::string& list, nlohmann::json& field);

  const char* chooser_;
  std::set<std::string> whole_;
  std::deque<Flag> flags_;  ///< CLI11 keeps addresses of the values
};

}  // namespace ulp::cli
