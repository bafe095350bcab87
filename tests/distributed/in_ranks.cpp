#include "in_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace ulp::test {

namespace {

constexpr auto kLimit = std::chrono::minutes(2);
constexpr auto kPoll = std::chrono::milliseconds(10);

pid_t start_rank(const std::string& name, int rank, int ranks, const TemporaryFolder& folder) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  const int out = ::open((folder / ("output." + std::to_string(rank))).c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("ULP_TEST_FOLDER", folder.path().c_str(), 1);
  const std::string filter = "--gtest_filter=RankBody." + name;
  ::execl("/proc/self/exe", "test_distributed", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
  ::_exit(127);
}

}  // namespace

std::vector<RankOutcome> run_in_ranks(const std::string& name, int ranks) {
  const TemporaryFolder folder;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) processes.push_back(start_rank(name, rank, ranks, folder));
  std::vector<RankOutcome> outcomes(processes.size());
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  for (size_t left = processes.size(); left > 0; std::this_thread::sleep_for(kPoll)) {
    for (size_t i = 0; i < processes.size(); ++i) {
      int status = 0;
      if (outcomes[i].code != -1 || ::waitpid(processes[i], &status, WNOHANG) != processes[i]) continue;
      outcomes[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      --left;
    }
    if (std::chrono::steady_clock::now() < deadline) continue;
    for (size_t i = 0; i < processes.size(); ++i)
      if (outcomes[i].code == -1) ::kill(processes[i], SIGKILL);
  }
  for (size_t i = 0; i < outcomes.size(); ++i) {
    std::ostringstream text;
    text << std::ifstream(folder / ("output." + std::to_string(i))).rdbuf();
    outcomes[i].output = text.str();
  }
  return outcomes;
}

std::filesystem::path rank_folder() {
  const char* folder = std::getenv("ULP_TEST_FOLDER");
  return folder == nullptr ? "" : folder;
}

distributed::InitOptions rank_options() {
  distributed::InitOptions options;
  options.rank = std::atoi(std::getenv("RANK"));
  options.world_size = std::atoi(std::getenv("WORLD_SIZE"));
  options.file = rank_folder() / "meet";
  options.one_machine = true;
  options.timeout = options.connect_timeout = std::chrono::minutes(1);
  return options;
}

std::shared_ptr<distributed::ProcessGroup> rank_group() {
  return distributed::init_process_group(rank_options());
}

}  // namespace ulp::test
