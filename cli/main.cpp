// ulp: one command-line tool over both libraries.
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "cli/command.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/report/format.h"
#include "ulp/report/progress.h"
#include "ulp/version.h"

namespace {

using namespace ulp::cli;

/// One line on stderr.
int report(const std::string& text, int code) {
  std::cout.flush();
  std::cerr << "ulp: " << ulp::report::escape_controls(text) << std::endl;
  return code;
}

/// A full disk or a closed pipe shows only when the buffer is written.
int flushed() {
  return std::cout.flush() ? kOk : report("could not write to stdout", kFailed);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;
  std::string path = "ulp";
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  return report(ulp::report::first_line(error.what()) + " (see `" + path + " --help`)", kUsage);
}

int run(int argc, char** argv) {
  CLI::App app{"ulp trains LibTorch models in low precision, makes them small and runs them fast."};
  app.name("ulp");
  app.set_version_flag("--version", "ulp " ULP_VERSION);
  app.require_subcommand(1);
  const std::string missing = missing_commands();
  app.footer(
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 bad input file, 130 interrupted.\nStart with: ulp demo "
      "--quick" +
      (missing.empty() ? "" : "\n`make build` builds a program that also has: " + missing));
  add_commands(app);
  const Command* command = argc > 1 ? find_command(argv[1]) : nullptr;
  if (argc > 1 && argv[1][0] != '-' && command == nullptr) return report(unknown_command(argv[1]), kUsage);
  if (command != nullptr && command->arrange != nullptr) argc = command->arrange(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // for help or the version
    app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return flushed();
}

/// The exit code of the command, after a line on stderr where it failed.
int code_of(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const EndWith& end) {
    return report(end.text, end.code);
  } catch (const ulp::Interrupted&) {
    return report("interrupted", kInterrupted);
  } catch (const ulp::FileError& error) {
    return report(error.what(), kBadFile);
  } catch (const c10::Error& error) {
    return report(ulp::report::first_line(error.what_without_backtrace()), kFailed);
  } catch (const ulp::Error& error) {
    return report(error.what(), kFailed);
  } catch (const std::exception& error) {
    return report(ulp::report::first_line(error.what()), kFailed);
  }
}

/// Ends the process without the destructors of what LibTorch registered: they take a third of the time of a
/// short command, and free memory that the system frees anyway. Instrumented programs report what they
/// found after the destructors.
[[noreturn]] void end(int code) {
#ifdef ULP_SANITIZED
  std::exit(code);
#else
  ulp::report::Progress::restore_cursor();
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

/// LibTorch says of LSTM layers with projections that another kernel runs them, whose numbers are the same.
struct QuietKernels : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    if (!warning.msg().starts_with("LSTM with projections")) c10::WarningHandler::process(warning);
  }
};

}  // namespace

int main(int argc, char** argv) {
  static QuietKernels quiet;
  c10::WarningUtils::set_warning_handler(&quiet);
  ulp::catch_interrupts("ulp: interrupted\n");
  end(code_of(argc, argv));
}
