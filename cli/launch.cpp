// ulp launch: runs a command as several processes that train together.
#include "ulp/app/train/launch.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "ulp/base/interrupt.h"

namespace ulp::cli {

namespace {

constexpr double kMostProcesses = 1024;
constexpr double kMostSeconds = 3600;

struct LaunchFlags {
  app::LaunchOptions options;
  int64_t processes = 2;
  double grace_seconds = 5;
};

void run(LaunchFlags flags, std::vector<std::string> command) {
  if (command.empty()) throw CLI::ValidationError("expected a command to start, got none");
  if (command[0] == "ulp") command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  flags.options.command = std::move(command);
  flags.options.processes = static_cast<int>(flags.processes);
  flags.options.grace = std::chrono::milliseconds(static_cast<int64_t>(flags.grace_seconds * 1000));
  const app::LaunchResult result = app::launch(flags.options);
  if (result.code == kInterrupted) throw Interrupted();
  if (result.code != kOk) throw EndWith{result.code, result.what + "; the others were ended"};
}

/// Takes the -- before the command out of the arguments, which CLI11 would hand to the command above; returns
/// how many are left.
int without_separator(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      std::copy(argv + i + 1, argv + argc, argv + i);
      return argc - 1;
    }
    if (!word.starts_with('-')) break;
    if (word == "-n" || word == "--processes" || word == "--grace") ++i;  // its value
  }
  return argc;
}

void add_launch(CLI::App& app) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command =
      app.add_subcommand("launch", "Run a command as several processes of this machine that train together");
  command
      ->add_option("-n,--processes", flags->processes,
                   "Processes to start; each gets its RANK and the WORLD_SIZE")
      ->check(number_check<int64_t>({.name = "", .min = 1, .max = kMostProcesses}, "POSITIVE"))
      ->capture_default_str();
  command
      ->add_option("--grace", flags->grace_seconds,
                   "Seconds that the others have to end in when one has died, before they are killed")
      ->check(number_check<double>({.name = "", .min = 0, .max = kMostSeconds}, "SECONDS"))
      ->capture_default_str();
  command->prefix_command();
  command->footer(
      "The first word that is no option, or what follows --, is the command: `ulp` is this program. The "
      "exit\n"
      "code is that of the process that died first (128 + n for signal n).\n"
      "Examples:\n"
      "  ulp launch -n 2 ulp train --precision bf16 --batch 64 --out model.safetensors\n"
      "  ulp launch -n 4 ulp train --zero 2 --masters split --precision bf16 --optimizer adamw\n"
      "  ulp launch -n 2 -- ./my_program --its-flag\n");
  command->callback([flags, command] { run(*flags, command->remaining()); });
}

const Command kLaunchCommand("launch", add_launch, without_separator);

}  // namespace

}  // namespace ulp::cli
