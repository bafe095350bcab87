// What every subcommand shares: the flags --json and --threads, and how results and errors are shown.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

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

/// Text from a file, with its lines: other control characters are escaped.
std::string printable(const std::string& text);
/// Prints JSON, indented, to stdout; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::json& json);
/// Prints a table to stdout, plain ASCII where the locale is not UTF-8.
void print_table(const report::Table& table);
/// Rows as objects keyed by column names; missing cells are null. Rows with marked cells have an object
/// "marks" of the same keys.
nlohmann::json to_json(const report::Table& table);

// One per file of this folder; each registers a subcommand whose callback runs it.
void add_bench(CLI::App& app);
void add_bench_amp(CLI::App& bench);  ///< a subcommand of bench
void add_demo(CLI::App& app);
void add_devices(CLI::App& app);
void add_distill(CLI::App& app);
void add_eval(CLI::App& app);
void add_export(CLI::App& app);
void add_formats(CLI::App& app);
void add_generate(CLI::App& app);
void add_tokenizer(CLI::App& app);
void add_inspect(CLI::App& app);
void add_launch(CLI::App& app);
/// Takes the -- that stands before the command of `ulp launch` out of the arguments, which CLI11 would hand to the
/// command above; returns how many are left.
int without_separator(int argc, char** argv);
void add_lower(CLI::App& app);
void add_memory(CLI::App& app);
void add_prune(CLI::App& app);
void add_quantize(CLI::App& app);
void add_roofline(CLI::App& app);
void add_run(CLI::App& app);
void add_train(CLI::App& app);

}  // namespace ulp::cli
