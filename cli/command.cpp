#include "cli/command.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string_view>

#include "cli/field_flags.h"
#include "ulp/measure/interference.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

constexpr double kMost = std::numeric_limits<int32_t>::max();

/// Every command there is, in the order of the help.
constexpr std::array kCommands = {"demo",      "train",    "launch",  "eval",   "quantize",
                                  "prune",     "distill",  "check",   "lower",  "export",
                                  "tokenizer", "generate", "run",     "bench",  "roofline",
                                  "memory",    "inspect",  "devices", "formats"};

/// Those of this program, each at its place; null for the others. Filled in before main().
constinit std::array<const Command*, kCommands.size()> linked_commands{};

/// kCommands.size() for a name that is not there.
size_t place_of(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kCommands, name) - kCommands.begin());
}

}  // namespace

Command::Command(const char* name, Add add_in, Arrange arrange_in) : add(add_in), arrange(arrange_in) {
  linked_commands.at(place_of(name)) = this;
}

const Command* find_command(std::string_view name) {
  const size_t place = place_of(name);
  return place < linked_commands.size() ? linked_commands[place] : nullptr;
}

void add_commands(CLI::App& app) {
  for (const Command* command : linked_commands) {
    if (command != nullptr) command->add(app);
  }
}

std::string missing_commands() {
  std::string names;
  for (size_t i = 0; i < kCommands.size(); ++i) {
    if (linked_commands[i] == nullptr) names.append(names.empty() ? "" : ", ").append(kCommands[i]);
  }
  return names;
}

std::string unknown_command(const std::string& name) {
  if (place_of(name) == kCommands.size()) return "unknown command '" + name + "' (see `ulp --help`)";
  return "the command '" + name + "' is not in this program: `make build` builds `ulp`, which has it";
}

CLI::Validator positive() {
  return number_check<int64_t>({.name = "", .min = 1, .max = kMost}, "POSITIVE");
}

CLI::Validator not_negative() {
  return number_check<int64_t>({.name = "", .min = 0, .max = kMost}, "NONNEGATIVE");
}

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& examples, CommonFlags& flags) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_flag("--json", flags.json, "Print the result as JSON on stdout");
  command->add_option("--threads", flags.threads, "Threads to compute with (0: one per core)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->footer("Examples:\n" + examples);
  return command;
}

void apply(const CommonFlags& flags) {
  if (flags.threads > 0) at::set_num_threads(flags.threads);
}

bool has_fixed_threads(const CommonFlags& flags) {
  return flags.threads > 0 || std::getenv("OMP_NUM_THREADS") != nullptr;
}

void say_threads_follow(CLI::App& command) {
  command.get_option("--threads")
      ->description(
          "Threads to compute with (0: as OMP_NUM_THREADS has it, else one a core and fewer while other "
          "programs compute)");
}

std::unique_ptr<amp::AdaptiveThreads> adaptive_threads(const CommonFlags& flags) {
  return has_fixed_threads(flags) ? nullptr : std::make_unique<amp::AdaptiveThreads>();
}

std::string describe(const amp::AdaptiveThreads* threads) {
  if (threads == nullptr || !measure::is_disturbed(threads->others())) return {};
  char text[96];
  std::snprintf(text, sizeof text, "others took %.0f %% of the processors: %.1f of %d threads on average",
                100 * *threads->others(), threads->mean_threads(), threads->most());
  return text;
}

std::string printable(const std::string& text) {
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0) out += '\n';
    out += report::escape_controls(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return out;
}

void print_json(const nlohmann::json& json) {
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void print_table(const report::Table& table) {
  std::cout << report::to_text(table, {.unicode = report::locale_is_utf8()}) << std::flush;
}

nlohmann::json to_json(const report::Table& table) {
  nlohmann::json rows = nlohmann::json::array();
  const auto key_of = [&](size_t i) {
    const report::Column& column = table.columns[i];
    return column.unit.empty() ? column.name : column.name + " [" + column.unit + "]";
  };
  for (const auto& cells : table.rows) {
    nlohmann::json row;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string key = key_of(i);
      if (const auto* number = std::get_if<double>(&cells[i])) {
        row[key] = *number;
      } else if (const auto* text = std::get_if<std::string>(&cells[i])) {
        row[key] = *text;
      } else {
        row[key] = nullptr;
      }
    }
    rows.push_back(std::move(row));
  }
  for (const report::Mark& mark : table.marks)
    rows[static_cast<size_t>(mark.row)]["marks"][key_of(static_cast<size_t>(mark.column))] = mark.text;
  return rows;
}

}  // namespace ulp::cli
