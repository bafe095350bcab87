// Runs the tests; with --table [NETWORK...] prints a Markdown table of networks and stages and the messages
// behind each failure; with --page FILE writes the list of expected.h into docs/networks.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "page.h"
#include "stages.h"

namespace ulp::test {
namespace {

/// The start of a message on one line, without the list of what the library has.
std::string short_message(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const size_t list = text.find(" ("), rest = text.find("), got");
  if (list < rest && rest != std::string::npos) text.erase(list, rest + 1 - list);
  return text.substr(0, 160);
}

const char* cell(StageResult::Kind kind) {
  using enum StageResult::Kind;
  return kind == works ? "yes" : kind == fails ? "**no**" : "-";
}

/// Puts one network's row on the screen; gives its failures, those of one message together.
std::string print_row(const Network& network, std::array<int, kStageNames.size()>& working) {
  std::vector<std::pair<std::string, std::string>> failures;  // stages, message
  std::printf("\n| %s |", network.name.c_str());
  Subject subject(network);
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    const StageResult result = subject.run(static_cast<Stage>(i));
    std::printf(" %s |", cell(result.kind));
    std::fflush(stdout);
    if (result.kind != StageResult::Kind::fails) {
      ++working[i];
      continue;
    }
    const std::string message = short_message(result.message);
    if (failures.empty() || failures.back().second != message) failures.emplace_back("", message);
    std::string& stages = failures.back().first;
    stages += (stages.empty() ? "" : " ") + std::string(kStageNames[i]);
  }
  std::string text;
  for (const auto& [stages, message] : failures)
    text += "- " + network.name + " (" + stages + "): `" + message + "`\n";
  return text;
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
    failures += print_row(network, working);
  }
  std::printf("\n| of %d |", count);
  for (const int number : working) std::printf(" %d |", number);
  std::printf("\n\n`-`: no layer of the kind (counted as working).\n\n%s", failures.c_str());
}

}  // namespace
}  // namespace ulp::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--table") {
    ulp::test::print_table({argv + 2, argv + argc});
    return 0;
  }
  if (argc == 3 && std::string_view(argv[1]) == "--page") {
    std::stringstream page;
    page << std::ifstream(argv[2]).rdbuf();
    const std::string text = ulp::test::with_networks(page.str());
    std::ofstream file(argv[2]);
    file << text;
    if (file.flush()) return 0;
    std::fprintf(stderr, "test_networks: cannot write %s\n", argv[2]);
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
