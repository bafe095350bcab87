// Runs the tests, or with --table [NETWORK...] prints a Markdown table of networks and stages and the messages
// behind each failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "stages.h"

namespace ulp::test {
namespace {

/// The start of a message on one line, fit for Markdown.
std::string short_message(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, 160);
}

const char* cell(StageResult::Kind kind) {
  using enum StageResult::Kind;
  return kind == works ? "yes" : kind == fails ? "**no**" : "-";
}

void print_table(const std::vector<std::string>& wanted) {
  std::string failures;
  std::array<int, kStageNames.size()> working{};
  std::printf("| network |");
  for (const char* stage : kStageNames) std::printf(" %s |", stage);
  std::printf("\n|---|");
  for (size_t i = 0; i < kStageNames.size(); ++i) std::printf("---|");
  int count = 0;
  for (const Network& network : networks()) {
    if (!wanted.empty() && std::ranges::find(wanted, network.name) == wanted.end()) continue;
    ++count;
    std::printf("\n| %s |", network.name.c_str());
    Subject subject(network);
    for (size_t i = 0; i < kStageNames.size(); ++i) {
      const StageResult result = subject.run(static_cast<Stage>(i));
      std::printf(" %s |", cell(result.kind));
      std::fflush(stdout);
      const bool failed = result.kind == StageResult::Kind::fails;
      if (!failed) ++working[i];
      if (failed)
        failures +=
            "- " + network.name + ", " + kStageNames[i] + ": `" + short_message(result.message) + "`\n";
    }
  }
  std::printf("\n| of %d |", count);
  for (const int number : working) std::printf(" %d |", number);
  std::printf("\n\n`-`: the network has no layer of the kind (counted as working).\n\n%s", failures.c_str());
}

}  // namespace
}  // namespace ulp::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--table") {
    ulp::test::print_table({argv + 2, argv + argc});
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
