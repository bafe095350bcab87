// The commands and flags that the pages show are those of the tool.
#ifdef ULP_TOOL
#include <gtest/gtest.h>
#include <stdio.h>

#include <map>
#include <memory>
#include <regex>
#include <sstream>

#include "page.h"

namespace {

using ulp::docs::Page;

/// What `ulp COMMAND --help` prints, each command run once; empty for what is no command.
const std::string& help_of(const std::string& command) {
  static std::map<std::string, std::string> known;
  const auto [at, is_new] = known.try_emplace(command);
  if (!is_new) return at->second;
  const std::string line = "'" ULP_TOOL "' " + command + " --help 2>/dev/null </dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(line.c_str(), "r"), ::pclose);
  char buffer[4096];
  while (const size_t read = ::fread(buffer, 1, sizeof buffer, pipe.get())) at->second.append(buffer, read);
  return at->second;
}

bool knows(const std::string& help, const std::string& flag) {
  return std::regex_search(help, std::regex("(^|[ ,{])" + flag + "([^\\w-]|$)"));
}

struct Usage {
  std::string command;  ///< "train", "bench amp"
  std::vector<std::string> flags;
};

/// Reads "train --clip 1 --watch": words up to the first that is none, then what starts with a dash.
Usage parse_usage(const std::string& text) {
  static const std::regex word("[a-z]+"), flag("(--?[a-z][a-z0-9-]*).*");
  Usage usage;
  std::istringstream in(text.substr(0, text.find(" #")));
  bool in_command = true;
  std::smatch match;
  for (std::string token; in >> token;) {
    in_command = in_command && std::regex_match(token, word);
    if (in_command)
      usage.command += (usage.command.empty() ? "" : " ") + token;
    else if (std::regex_match(token, match, flag))
      usage.flags.push_back(match[1]);
  }
  return usage;
}

/// Visits what follows "ulp " at the start of an indented line and of code inside a line, and what follows it
/// once more where one command starts another (`ulp launch -n 2 ulp train`).
template <typename Visit>
void for_each_usage(const Page& page, Visit visit) {
  static const std::regex in_block(R"(^    (?:\$ )?ulp (.+)$)"), in_line(R"(`ulp ([^`]+)`)");
  for (size_t i = 0; i < page.lines.size(); ++i) {
    const std::string& line = page.lines[i];
    const std::string where = page.path + ":" + std::to_string(i + 1);
    for (const std::regex* pattern : {&in_block, &in_line}) {
      for (auto at = std::sregex_iterator(line.begin(), line.end(), *pattern); at != std::sregex_iterator();
           ++at) {
        const std::string inner = " ulp ";
        std::string text = (*at)[1];
        for (size_t end = text.find(inner); end != std::string::npos; end = text.find(inner)) {
          visit(parse_usage(text.substr(0, end)), where);
          text = text.substr(end + inner.size());
        }
        visit(parse_usage(text), where);
      }
    }
  }
}

TEST(ToolFlags, CommandsOfThePagesHaveTheirFlags) {
  int flags = 0;
  for (const std::string& path : ulp::docs::all_pages(ULP_SOURCE_DIR)) {
    for_each_usage(ulp::docs::read_page(ULP_SOURCE_DIR, path), [&](const Usage& usage,
                                                                   const std::string& where) {
      const std::string& help = help_of(usage.command);
      ASSERT_NE(help.find("Usage: ulp"), std::string::npos) << where << ": there is no ulp " << usage.command;
      for (const std::string& flag : usage.flags) {
        EXPECT_TRUE(knows(help, flag)) << where << ": ulp " << usage.command << " has no " << flag;
        ++flags;
      }
    });
  }
  EXPECT_GT(flags, 40);
}

/// The help of every command, from the list in `ulp --help`.
std::string all_help() {
  const std::string& top = help_of("");
  static const std::regex command(R"(\n  ([a-z]+)  )");
  std::string all;
  for (auto at = std::sregex_iterator(top.begin(), top.end(), command); at != std::sregex_iterator(); ++at)
    all += help_of((*at)[1]);
  return all + help_of("bench amp");
}

TEST(ToolFlags, FlagsNamedAloneBelongToACommand) {
  static const std::regex alone(R"(`(--[a-z][a-z0-9-]*)[^`]*`)");
  const std::string help = all_help();
  ASSERT_GT(help.size(), 5000u);
  for (const std::string& path : ulp::docs::all_pages(ULP_SOURCE_DIR)) {
    if (path.starts_with("bench/")) continue;  // flags of other programs
    const Page page = ulp::docs::read_page(ULP_SOURCE_DIR, path);
    for (const std::string& line : page.lines) {
      for (auto at = std::sregex_iterator(line.begin(), line.end(), alone); at != std::sregex_iterator();
           ++at)
        EXPECT_TRUE(knows(help, (*at)[1])) << path << ": no command has " << (*at)[1] << ", in: " << line;
    }
  }
}

}  // namespace
#endif
