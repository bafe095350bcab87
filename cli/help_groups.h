// The help of a command as groups of flags, in an order of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ulp::cli {

/// A title of the help, and the flags below it, as "--batch".
struct HelpGroup {
  std::string title;
  std::vector<std::string> flags;
};

/// Sorts the flags of a command's help. Groups and their flags stand in the order that is given here; flags that
/// no group names come behind them, under the titles that they have. Throws CLI::OptionNotFound for a flag that
/// the command does not have. To be called when the command has all its flags.
void group_help(CLI::App& command, const std::vector<HelpGroup>& groups);

}  // namespace ulp::cli
