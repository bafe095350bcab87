// What every subcommand shares: the flags --json and --threads, and how results and errors are shown.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/base/error.h"
#include "ulp/report/table.h"

namespace ulp::cli {

/// Documented exit codes.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kBadFile = 3, kInterrupted = 130 };

/// Thrown where the tool is to end with a code that is somebody else's.
struct EndWith {
  int code;
  std::string text;  ///< for stderr
};

/// Flags that each subcommand takes.
struct CommonFlags {
  bool json = false;
  int threads = 0;
};

/// Makes a subcommand with its common flags and a footer of examples.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& examples, CommonFlags& flags);

/// Checks of whole numbers of up to 31 bits, > 0 or >= 0. (CLI11's own tell the largest double, and take what
/// is too large for the number.)
CLI::Validator positive();
CLI::Validator not_negative();

/// Returns what `judge` returns. What the library says of the values of flags is wrong use (exit code 2): an
/// ulp::Error becomes a CLI::ValidationError. A FileError stays one.
template <typename Judge>
auto as_usage(Judge&& judge) {
  try {
    return judge();
  } catch (const FileError&) {
    throw;
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

/// Applies --threads to LibTorch. Called first by every command that computes.
void apply(const CommonFlags& flags);
/// Whether the thread count is the user's: --threads, or OMP_NUM_THREADS in the environment.
bool has_fixed_threads(const CommonFlags& flags);
/// For the help of commands that train.
void say_threads_follow(CLI::App& command);
/// What commands that train keep while they do: LibTorch's thread count follows the machine. Null for a fixed
/// count.
std::unique_ptr<amp::AdaptiveThreads> adaptive_threads(const CommonFlags& flags);
/// "others took 48 % of the processors: 1.2 of 2 threads on average"; empty for a quiet machine and for null.
std::string describe(const amp::AdaptiveThreads* threads);

/// Text from a file, with its lines: other control characters are escaped.
std::string printable(const std::string& text);
/// Prints JSON, indented, to stdout; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::json& json);
/// Prints a table to stdout, plain ASCII where the locale is not UTF-8.
void print_table(const report::Table& table);
/// Rows as objects keyed by column names; missing cells are null. Rows with marked cells have an object
/// "marks" of the same keys.
nlohmann::json to_json(const report::Table& table);

/// A command of the tool. A file of this folder has one as a constant, so that a program has the commands of
/// the files it is linked from: `ulp` all of them, `ulp-demo` those of the demo.
class Command {
 public:
  using Add = void (*)(CLI::App& app);
  using Arrange = int (*)(int argc, char** argv);

  /// `name` is in the list of command.cpp. `add` registers the subcommand, whose callback runs it. `arrange`
  /// (may be null) gets the program's arguments before they are parsed, and returns how many it left.
  Command(const char* name, Add add, Arrange arrange = nullptr);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const Add add;
  const Arrange arrange;
};

/// The command of that name; null where this program has none.
const Command* find_command(std::string_view name);
/// Adds the commands of this program, in the order of the help.
void add_commands(CLI::App& app);
/// The commands that this program is without, "train, eval"; empty where it has all.
std::string missing_commands();
/// Says of a name without a find_command() whether another program has it.
std::string unknown_command(const std::string& name);

void add_bench_amp(CLI::App& bench);  ///< a subcommand of bench

}  // namespace ulp::cli
