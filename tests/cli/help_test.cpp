// The help of commands with many flags: groups in an order of their own, the flags that matter most first.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tool.h"

namespace {

/// A title of the help and the flags below it, in order: "-o,--out" is "--out".
using ShownGroup = std::pair<std::string, std::vector<std::string>>;

std::vector<ShownGroup> shown_groups(const std::string& help) {
  std::vector<ShownGroup> groups;
  std::istringstream in(help.substr(0, help.find("Examples:")));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(" ") && line.ends_with(":")) {
      groups.push_back({line.substr(0, line.size() - 1), {}});
    } else if (line.starts_with("  -") && !groups.empty()) {
      const size_t at = line.find("--");
      groups.back().second.push_back(line.substr(at, line.find_first_of(" ,{", at) - at));
    }
  }
  return groups;
}

std::vector<ShownGroup> groups_of(const std::string& command) {
  const ulp::test::Workshop shop;
  const ulp::test::Outcome outcome = shop.started(command + " --help");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return shown_groups(outcome.out);
}

std::vector<std::string> titles_of(const std::vector<ShownGroup>& groups) {
  std::vector<std::string> titles;
  for (const ShownGroup& group : groups) titles.push_back(group.first);
  return titles;
}

TEST(Help, TrainHasTheMainFlagsFirstAndTheOthersByWhatTheyAreAbout) {
  const auto groups = groups_of("train");
  EXPECT_EQ(titles_of(groups),
            (std::vector<std::string>{"Main flags", "Data", "Model", "Adapters", "Optimization", "Precision",
                                      "Memory", "Processes and threads", "Output"}));
  EXPECT_EQ(groups.at(0).second,
            (std::vector<std::string>{"--data", "--model", "--precision", "--epochs", "--batch",
                                      "--optimizer", "--lr", "--out", "--checkpoint", "--resume"}));
}

TEST(Help, PruneHasTheMainFlagsFirstAndTheOthersByWhatTheyAreAbout) {
  const auto groups = groups_of("prune");
  EXPECT_EQ(titles_of(groups), (std::vector<std::string>{
                                   "Positionals", "Main flags", "Data", "Single weights (--method weights)",
                                   "Channels (--method channels)", "Both methods", "Lottery tickets",
                                   "Training (--finetune)", "Processes and threads", "Output"}));
  EXPECT_EQ(groups.at(1).second,
            (std::vector<std::string>{"--method", "--sparsity", "--keep", "--score", "--pattern",
                                      "--criterion", "--data", "--finetune", "--epochs", "--out"}));
}

TEST(Help, NoFlagStandsTwice) {
  for (const char* command : {"train", "prune"}) {
    std::set<std::string> seen;
    for (const auto& [title, flags] : groups_of(command)) {
      EXPECT_TRUE(title == "Positionals" || !flags.empty()) << title;
      for (const std::string& flag : flags) EXPECT_TRUE(seen.insert(flag).second) << command << ' ' << flag;
    }
    EXPECT_GT(seen.size(), 50u) << command;
  }
}

}  // namespace
