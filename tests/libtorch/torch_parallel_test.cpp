#include "ulp/libtorch/torch_parallel.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "ulp/base/error.h"

namespace {

class TorchThreads : public ::testing::Test {
 protected:
  TorchThreads() : before_(torch::get_num_threads()) { torch::set_num_threads(2); }
  ~TorchThreads() override { torch::set_num_threads(before_); }

 private:
  int before_;
};

TEST_F(TorchThreads, EachTaskRunsOnceAndNoTwoWorkersShareANumber) {
  const ulp::libtorch::TorchParallel parallel;
  EXPECT_EQ(parallel.workers(), 2);
  std::mutex mutex;
  std::vector<int> runs(64, 0);
  std::set<std::thread::id> threads;
  std::vector<std::set<std::thread::id>> of_worker(2);
  parallel.run(64, [&](int64_t task, int worker) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    ++runs.at(static_cast<size_t>(task));
    threads.insert(std::this_thread::get_id());
    of_worker.at(static_cast<size_t>(worker)).insert(std::this_thread::get_id());
  });
  EXPECT_EQ(runs, std::vector<int>(64, 1));
  EXPECT_EQ(threads.size(), 2u) << "compiled without OpenMP, everything runs on one thread";
  for (const auto& ids : of_worker) EXPECT_EQ(ids.size(), 1u);
}

TEST_F(TorchThreads, PiecesCoverTheRangeAndKeepTheGrain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> pieces;
  ulp::libtorch::parallel_for(3, 20, 16, [&](int64_t from, int64_t to) {
    const std::lock_guard lock(mutex);
    pieces.insert({from, to});
  });
  int64_t next = 3;
  for (const auto& [from, to] : pieces) {
    EXPECT_EQ(from, next);
    next = to;
  }
  EXPECT_EQ(next, 20);
  EXPECT_LE(pieces.size(), 2u);
}

TEST_F(TorchThreads, AnErrorOfATaskReachesTheCaller) {
  EXPECT_THROW(ulp::libtorch::parallel_for(0, 64, 1,
                                           [](int64_t, int64_t to) {
                                             if (to == 64) ulp::fail("tests", "stop");
                                           }),
               ulp::Error);
}

}  // namespace
