#include "cli/help_groups.h"

#include <algorithm>
#include <memory>
#include <sstream>

namespace ulp::cli {

namespace {

/// CLI11 sorts groups by the order in which the first flag of each was added.
class GroupedHelp final : public CLI::Formatter {
 public:
  explicit GroupedHelp(std::vector<std::vector<const CLI::Option*>> groups) : groups_(std::move(groups)) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    std::ostringstream out;
    out << make_description(app) << make_usage(app, std::move(name)) << make_positionals(app);
    for (const auto& options : groups_)
      if (!options.empty()) out << make_group(options.front()->get_group(), false, options);
    out << '\n' << make_footer(app);
    return out.str();
  }

 private:
  std::vector<std::vector<const CLI::Option*>> groups_;
};

}  // namespace

void group_help(CLI::App& command, const std::vector<HelpGroup>& groups) {
  std::vector<std::vector<const CLI::Option*>> sorted;
  std::vector<const CLI::Option*> known;
  for (const HelpGroup& group : groups) {
    auto& options = sorted.emplace_back();
    for (const std::string& flag : group.flags) {
      options.push_back(command.get_option(flag)->group(group.title));
      known.push_back(options.back());
    }
  }
  for (const std::string& title : command.get_groups()) {
    const auto rest = [&](const CLI::Option* option) {
      return option->get_group() == title && option->nonpositional() &&
             std::ranges::count(known, option) == 0;
    };
    if (!title.empty()) sorted.push_back(static_cast<const CLI::App&>(command).get_options(rest));
  }
  command.formatter(std::make_shared<GroupedHelp>(std::move(sorted)));
}

}  // namespace ulp::cli
