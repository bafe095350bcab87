// Tests whose body runs in several processes at once: each starts this program again, once a rank.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "ulp/distributed/init.h"

namespace ulp::test {

/// How the process of a rank ended.
struct RankOutcome {
  int code = -1;  ///< exit code; 128 + n for signal n
  std::string output;
};

/// Runs the test `name` of the suite RankBody as so many processes, and waits for all; after two minutes they
/// are killed.
std::vector<RankOutcome> run_in_ranks(const std::string& name, int ranks);

/// In a process of run_in_ranks(): how to meet the others.
distributed::InitOptions rank_options();
/// The group of all processes of run_in_ranks().
std::shared_ptr<distributed::ProcessGroup> rank_group();
/// The folder that all of them share.
std::filesystem::path rank_folder();

}  // namespace ulp::test

/// A test of `ranks` processes: each runs the body, whose failures are the test's.
#define TEST_IN_RANKS(ranks, suite, name)                                                     \
  TEST(suite, name) {                                                                         \
    const auto outcomes = ::ulp::test::run_in_ranks("DISABLED_" #suite "_" #name, ranks);     \
    for (size_t rank = 0; rank < outcomes.size(); ++rank)                                     \
      EXPECT_EQ(outcomes[rank].code, 0) << "rank " << rank << ":\n" << outcomes[rank].output; \
  }                                                                                           \
  TEST(RankBody, DISABLED_##suite##_##name)
