// How processes meet, and what they are told when they do not.
#include "ulp/distributed/init.h"

#include <torch/torch.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "error_of.h"
#include "in_ranks.h"

namespace {

using namespace ulp;
using distributed::init_process_group;
using distributed::InitOptions;
using test::TemporaryFolder;

/// Sets variables, and takes all of the run's away at the end.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& set) {
    clear();
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() { clear(); }

 private:
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                             "ULP_DISTRIBUTED_TIMEOUT", "TORCHELASTIC_USE_AGENT_STORE"})
      ::unsetenv(name);
  }
};

std::string environment_error(const std::map<std::string, std::string>& set) {
  const Variables variables(set);
  return test::error_of([] { InitOptions::from_environment(); });
}

TEST(Init, WithoutVariablesIsASingleProcess) {
  const Variables none({});
  const auto group = init_process_group();
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->rank(), 0);
}

TEST(Init, ReadsTorchrunsVariables) {
  const Variables variables({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"ULP_DISTRIBUTED_TIMEOUT", "7"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const InitOptions options = InitOptions::from_environment();
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.world_size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.master_address, "node0");
  EXPECT_EQ(options.master_port, 29500);
  EXPECT_TRUE(options.launcher_listens);
  EXPECT_EQ(options.timeout, std::chrono::seconds(7));
  EXPECT_EQ(options.connect_timeout, std::chrono::seconds(7));
}

TEST(Init, NamesTheVariableThatIsMissingOrWrong) {
  EXPECT_SAYS(environment_error({{"RANK", "0"}}),
              "[distributed.from_environment] expected WORLD_SIZE beside RANK");
  EXPECT_SAYS(environment_error({{"WORLD_SIZE", "2"}}), "expected RANK beside WORLD_SIZE");
  EXPECT_SAYS(environment_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              "expected MASTER_ADDR beside WORLD_SIZE");
  EXPECT_SAYS(environment_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "here"}}),
              "expected MASTER_PORT beside WORLD_SIZE");
  EXPECT_SAYS(environment_error({{"RANK", "two"}, {"WORLD_SIZE", "2"}}), "in RANK, got 'two'");
  EXPECT_SAYS(environment_error(
                  {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "here"}, {"MASTER_PORT", "70000"}}),
              "expected a number from 1 to 65535 in MASTER_PORT, got '70000'");
  EXPECT_SAYS(
      environment_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "here"}, {"MASTER_PORT", "1"}}),
      "expected a rank from 0 to 1 among 2 processes, got 2");
}

TEST(Init, RefusesOptionsThatSayNoPlaceOrTime) {
  EXPECT_ERROR(init_process_group({.world_size = 2}), "expected master_address or file");
  EXPECT_ERROR(init_process_group({.world_size = 2, .master_address = "here"}), "expected master_port");
  EXPECT_ERROR(init_process_group({.connect_timeout = std::chrono::milliseconds(0)}),
               "expected time-outs > 0");
  EXPECT_ERROR(init_process_group({.world_size = 0}), "expected world_size >= 1, got 0");
}

InitOptions in_folder(const TemporaryFolder& folder, int rank, int world_size) {
  InitOptions options{.rank = rank, .world_size = world_size, .file = folder / "meet", .one_machine = true};
  options.connect_timeout = std::chrono::milliseconds(200);
  return options;
}

TEST(Init, NamesTheRanksThatDoNotCome) {
  const TemporaryFolder folder;
  const std::string text = test::error_of([&] { init_process_group(in_folder(folder, 1, 4)); });
  EXPECT_SAYS(text, "expected 4 processes at '");
  EXPECT_SAYS(text, "within 0.2 s, got none of ranks 0, 2, 3; this is rank 1");
}

TEST(Init, SaysThatNobodyListens) {
  distributed::InitOptions options{.rank = 1, .world_size = 2, .master_address = "127.0.0.1"};
  options.connect_timeout = std::chrono::milliseconds(300);
  {
    const distributed::MeetingPoint point;  // a port that was free a moment ago
    options.master_port = point.port();
  }
  EXPECT_ERROR(init_process_group(options), "rank 1 of 2 could not reach 127.0.0.1:");
}

TEST(Init, RefusesASecondProcessOfARank) {
  const TemporaryFolder folder;
  test::error_of([&] { init_process_group(in_folder(folder, 1, 3)); });
  EXPECT_ERROR(init_process_group(in_folder(folder, 1, 3)),
               "got a second one of rank 1 (or the file is one of an");
}

TEST(Init, RefusesProcessesThatCountDifferently) {
  const TemporaryFolder folder;
  test::error_of([&] { init_process_group(in_folder(folder, 1, 3)); });
  EXPECT_ERROR(init_process_group(in_folder(folder, 0, 2)),
               "expected all processes to count the same number of them, got 2 in rank 0 and 3 in rank 1");
}

TEST(Init, MeetsWhereALauncherListens) {
  const distributed::MeetingPoint point;
  std::vector<double> sums(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = init_process_group({.rank = rank,
                                             .world_size = 3,
                                             .master_address = "127.0.0.1",
                                             .master_port = point.port(),
                                             .launcher_listens = true});
      sums[rank] = distributed::all_reduce(*group, rank + 1);
      group->barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<double>(3, 6.0));
}

TEST_IN_RANKS(2, Init, MeetsInAFile) {
  const auto group = test::rank_group();
  EXPECT_EQ(distributed::all_reduce(*group, 1), 2);
}

}  // namespace
