#include "ulp/runtime/engine/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ulp/base/cpu_usage.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

int threads_of_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const ThreadPool pool(threads);
    EXPECT_EQ(pool.workers(), threads);
    for (const int64_t tasks : {0, 1, 2, 5, 64, 1000, 5'000'000}) {
      std::vector<uint8_t> runs(static_cast<size_t>(tasks), 0);
      std::vector<int> of_worker(static_cast<size_t>(threads), 0);
      std::atomic<bool> known = true;
      pool.run(tasks, [&](int64_t i, int worker) {
        if (worker < 0 || worker >= threads) known = false;
        ++runs[static_cast<size_t>(i)];
        ++of_worker[static_cast<size_t>(worker)];  // no two concurrent calls share one
      });
      EXPECT_TRUE(known);
      EXPECT_TRUE(std::ranges::all_of(runs, [](uint8_t count) { return count == 1; })) << tasks;
      EXPECT_EQ(std::accumulate(of_worker.begin(), of_worker.end(), 0), tasks);
    }
  }
}

TEST(ThreadPool, NobodyWaitsForTasksThatHaveNotBegun) {
  const ThreadPool pool(2);
  for (const int64_t slow : {0, 7}) {  // the first task of a worker's share: the other one does all else
    std::atomic<int> done = 0;
    pool.run(8, [&](int64_t i, int) {
      while (i == slow && done < 7) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done, 8);
  }
}

TEST(ThreadPool, ManyShortRunsOneAfterTheOther) {
  const ThreadPool pool(3);
  std::vector<int64_t> sums(3);
  for (int round = 0; round < 2000; ++round) {
    pool.run(3, [&](int64_t i, int) { ++sums[static_cast<size_t>(i)]; });
  }
  EXPECT_EQ(sums, (std::vector<int64_t>(3, 2000)));
}

TEST(ThreadPool, WakesSleepingWorkers) {
  const ThreadPool pool(2);
  std::atomic<int> ran = 0;
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run(2, [&](int64_t, int) { ++ran; });
  }
  EXPECT_EQ(ran, 10);
}

TEST(ThreadPool, MakesNoThreadForOne) {
  const int before = threads_of_process();
  const ThreadPool one(1);
  EXPECT_EQ(threads_of_process(), before);
  {
    const ThreadPool four(4);
    EXPECT_EQ(threads_of_process(), before + 3);
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(ThreadPool, ANestedRunStaysOnItsWorker) {
  const ThreadPool pool(2), other(2);
  std::atomic<int> inner = 0, moved = 0;
  pool.run(4, [&](int64_t, int worker) {
    pool.run(3, [&](int64_t, int nested) {
      ++inner;
      moved += nested != worker;
    });
    other.run(2, [](int64_t, int) {});
    pool.run(1, [&](int64_t, int) { ++inner; });
  });
  EXPECT_EQ(inner, 16);
  EXPECT_EQ(moved, 0);
}

TEST(ThreadPool, CallersTakeTurns) {
  const ThreadPool pool(2);
  std::vector<int64_t> per_worker(2);  // no two tasks may hold one worker's slot together
  const auto call = [&] {
    for (int i = 0; i < 500; ++i)
      pool.run(8, [&](int64_t, int worker) { ++per_worker[static_cast<size_t>(worker)]; });
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(per_worker[0] + per_worker[1], 8000);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  const ThreadPool pool(3);
  for (const int64_t bad : {0, 5, 8}) {
    EXPECT_THROW(pool.run(9,
                          [&](int64_t i, int) {
                            if (i == bad) throw std::runtime_error("task");
                          }),
                 std::runtime_error);
    std::atomic<int> ran = 0;
    pool.run(9, [&](int64_t, int) { ++ran; });
    EXPECT_EQ(ran, 9);
  }
}

TEST(ThreadPool, ChoosesAndChecksTheCount) {
  EXPECT_EQ(ThreadPool(0).workers(), usable_cores());
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(1 << 20), Error);
}

}  // namespace
}  // namespace ulp::runtime
