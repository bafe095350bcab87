#include "ulp/runtime/engine/thread_pool.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"
#include "ulp/base/cpu_limits.h"
#include "ulp/base/error.h"
#include "ulp/runtime/engine/pool_job.h"
#include "ulp/runtime/engine/spin_wait.h"

namespace ulp::runtime {
namespace {

using testing::comes_true, testing::gets_help;

int threads_of_process() {
  static const bool first_is_over =
      (std::thread([] {}).join(), true);  // with it sanitizers start one of theirs
  static_cast<void>(first_is_over);
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

/// A thread that was joined may be seen a little longer.
void expect_threads(int expected) {
  for (int i = 0; i < 5000 && threads_of_process() > expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(threads_of_process(), expected);
}

class ThreadPools : public ::testing::TestWithParam<PoolThreads> {};

TEST_P(ThreadPools, RunEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const ThreadPool pool(threads, GetParam());
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

TEST_P(ThreadPools, LetNobodyWaitForTasksThatHaveNotBegun) {
  const ThreadPool pool(2, GetParam());
  for (const int64_t slow : {0, 7}) {  // the first task of a worker's share: the other one does all else
    std::atomic<int> done = 0;
    bool others_did = true;
    pool.run(8, [&](int64_t i, int) {
      if (i == slow) others_did = comes_true([&] { return done == 7; });
      ++done;
    });
    EXPECT_TRUE(others_did);
    EXPECT_EQ(done, 8);
  }
}

TEST_P(ThreadPools, DoManyShortRunsOneAfterTheOther) {
  const ThreadPool pool(3, GetParam());
  std::vector<int64_t> sums(3);
  for (int round = 0; round < 2000; ++round) {
    pool.run(3, [&](int64_t i, int) { ++sums[static_cast<size_t>(i)]; });
  }
  EXPECT_EQ(sums, (std::vector<int64_t>(3, 2000)));
}

TEST_P(ThreadPools, WakeSleepingWorkers) {
  const ThreadPool pool(2, GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::array<std::atomic<int>, 2> worker_of = {-1, -1};
    std::atomic<bool> met = true;
    pool.run(2, [&](int64_t i, int worker) {
      worker_of[static_cast<size_t>(i)] = worker;
      if (!comes_true([&] { return worker_of[static_cast<size_t>(1 - i)] >= 0; })) met = false;
    });
    ASSERT_TRUE(met) << "one thread slept through run " << round;
    EXPECT_NE(worker_of[0], worker_of[1]);
  }
}

TEST_P(ThreadPools, MakeNoThreadForOne) {
  const int before = threads_of_process();
  {
    const ThreadPool one(1, GetParam());
    expect_threads(before);
    const ThreadPool four(4, GetParam());
    expect_threads(before + 3);
  }
  expect_threads(before);
}

TEST_P(ThreadPools, KeepANestedRunOnItsWorker) {
  const ThreadPool pool(2, GetParam()), other(2, GetParam());
  std::atomic<int> inner = 0, moved = 0;
  pool.run(4, [&](int64_t, int worker) {
    pool.run(3, [&](int64_t, int nested) {
      ++inner;
      moved += nested != worker;
    });
    other.run(1, [&](int64_t, int) {
      pool.run(2, [&](int64_t, int nested) { moved += nested != worker; });  // through another pool
    });
    pool.run(1, [&](int64_t, int) { ++inner; });
  });
  EXPECT_EQ(inner, 16);
  EXPECT_EQ(moved, 0);
}

TEST_P(ThreadPools, LetCallersTakeTurns) {
  const ThreadPool pool(2, GetParam());
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

TEST_P(ThreadPools, GiveAnExceptionToTheCallerAndGoOn) {
  const ThreadPool pool(3, GetParam());
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

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_P(ThreadPools, SleepWhileThereIsNothingToBeHad) {
  using std::chrono::milliseconds;
  const ThreadPool pool(3, GetParam());
  pool.run(3, [](int64_t, int) {});
  const double before = processor_seconds();
  pool.run(3,
           [](int64_t i, int) {  // one piece takes long: who has nothing left, the caller too, does not spin
             if (i == 1) std::this_thread::sleep_for(milliseconds(300));
           });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(processor_seconds() - before, 0.1);
}

TEST_P(ThreadPools, ChooseAndCheckTheCount) {
  EXPECT_EQ(ThreadPool(0, GetParam()).workers(), usable_cores());
  for (const int wrong : {-1, 1025, 1 << 20}) {
    try {
      const ThreadPool pool(wrong, GetParam());
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_option);
    }
  }
}

TEST_P(ThreadPools, WorkInAChildOfForkOnItsOneThread) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets a child of several threads start none";
#endif
  auto pool = std::make_unique<ThreadPool>(3, GetParam());
  std::atomic<int> ran = 0;
  pool->run(9, [&](int64_t, int) { ++ran; });
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<int> workers(3);
    pool->run(9, [&](int64_t, int worker) { ++workers[static_cast<size_t>(worker)]; });
    bool good = workers == std::vector<int>{9, 0, 0};
    {
      const auto anew = std::make_unique<ThreadPool>(2, GetParam());  // has a thread again
      std::atomic<int> done = 0;
      anew->run(8, [&](int64_t i, int) {
        if (i == 0) good = comes_true([&] { return done == 7; }) && good;
        ++done;
      });
      good = good && done == 8;
    }
    pool.reset();  // waits for nobody
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pool->run(9, [&](int64_t, int) { ++ran; });
  EXPECT_EQ(ran, 18);
}

TEST_P(ThreadPools, GiveTheirMemoryBackInAChildOfFork) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers count no memory in use";
#endif
  constexpr int kThreads =
      64;  // so that malloc keeps what it gets back in no cache, which it counts as in use
  auto pool = std::make_unique<ThreadPool>(kThreads, GetParam());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const size_t before = ::mallinfo2().uordblks;
    pool.reset();
    ::_exit(::mallinfo2().uordblks + kThreads * sizeof(PoolShare) <= before ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Runtime, ThreadPools, ::testing::Values(PoolThreads::own, PoolThreads::shared),
                         [](const auto& info) { return info.param == PoolThreads::own ? "own" : "shared"; });

TEST(SharedThreads, AreAsManyAsTheLargestPoolWants) {
  const int before = threads_of_process(), cores = usable_cores();
  {
    std::vector<std::unique_ptr<ThreadPool>> pools;
    for (int i = 0; i < 24; ++i) pools.push_back(std::make_unique<ThreadPool>(2, PoolThreads::shared));
    expect_threads(before + std::max(1, std::min(24, cores - 1)));
    const ThreadPool large(cores + 2, PoolThreads::shared);
    expect_threads(before + cores + 1);
  }
  expect_threads(before);
}

TEST(SharedThreads, ServeManyCallersAtOnce) {
  constexpr int kCallers = 24;
  std::vector<int64_t> sums(kCallers);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 20; ++round) {
        const ThreadPool pool(1 + c % 4, PoolThreads::shared);  // comes and goes
        for (int run = 0; run < 10; ++run) {
          std::vector<int64_t> of_worker(static_cast<size_t>(pool.workers()));
          pool.run(40, [&](int64_t i, int worker) { of_worker[static_cast<size_t>(worker)] += i; });
          sums[static_cast<size_t>(c)] += std::accumulate(of_worker.begin(), of_worker.end(), int64_t{0});
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int64_t>(kCallers, 200 * 780));
}

TEST(SharedThreads, CallersOfSeveralPoolsRunAtTheSameTime) {
  const ThreadPool one(2, PoolThreads::shared), two(2, PoolThreads::shared);
  std::array<std::atomic<bool>, 2> inside = {false, false};
  std::atomic<bool> met = true;
  const auto call = [&](const ThreadPool& pool, size_t own) {
    pool.run(2, [&](int64_t, int) {
      inside[own] = true;
      if (!comes_true([&] { return inside[1 - own].load(); })) met = false;
    });
  };
  std::thread other([&] { call(one, 0); });
  call(two, 1);
  other.join();
  EXPECT_TRUE(met) << "a run waited for the end of that of another pool";
}

/// Callers of pools of one thread, inside a run until they may end.
class BusyCallers {
 public:
  explicit BusyCallers(int count) {
    for (int i = 0; i < count; ++i) {
      callers_.emplace_back([&] {
        const ThreadPool pool(1, PoolThreads::shared);
        pool.run(1, [&](int64_t, int) {
          ++inside_;
          comes_true([&] { return ended_.load(); });
        });
      });
    }
    EXPECT_TRUE(comes_true([&] { return inside_ == count; }));
  }
  ~BusyCallers() {
    ended_ = true;
    for (std::thread& caller : callers_) caller.join();
  }
  BusyCallers(const BusyCallers&) = delete;
  BusyCallers& operator=(const BusyCallers&) = delete;

 private:
  std::atomic<int> inside_ = 0;
  std::atomic<bool> ended_ = false;
  std::vector<std::thread> callers_;
};

TEST(SharedThreads, CallersOfOneThreadTakeCores) {
  constexpr int kThreads = 4;
  const ThreadPool pool(kThreads, PoolThreads::shared);
  {
    const BusyCallers busy(std::max(usable_cores(), kThreads));
    EXPECT_FALSE(gets_help(pool, kThreads, std::chrono::milliseconds(20)));
  }
  EXPECT_TRUE(comes_true([&] { return gets_help(pool, kThreads, std::chrono::milliseconds(50)); }));
}

TEST(SharedThreads, RunWhereTheirPoolsMayRun) {
  const std::vector<bool> all = affinity_mask();
  if (std::ranges::count(all, true) < 2) GTEST_SKIP() << "one processor";
  const auto processor = static_cast<size_t>(std::ranges::find(all, true) - all.begin());
  std::unique_ptr<ThreadPool> pinned;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(processor, &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) == 0)
      pinned = std::make_unique<ThreadPool>(2, PoolThreads::shared);
  }).join();
  ASSERT_NE(pinned, nullptr);
  const ThreadPool free(2, PoolThreads::shared);
  std::vector<std::vector<bool>> masks(2);
  std::atomic<int> done = 0;
  free.run(2, [&](int64_t, int worker) {
    masks[static_cast<size_t>(worker)] = affinity_mask();
    ++done;
    comes_true([&] { return done == 2; });
  });
  EXPECT_EQ(masks, (std::vector<std::vector<bool>>{all, all}));
}

TEST(SpinWait, StaysAwakeAsLongAsItPays) {
  using std::chrono::microseconds;
  SpinWait wait;
  for (int i = 0; i < 50; ++i) wait.learn(microseconds(5));
  EXPECT_GT(wait.awake(), microseconds(5));
  EXPECT_LE(wait.awake(), microseconds(11));
  for (int i = 0; i < 50; ++i) wait.learn(microseconds(3000));
  EXPECT_EQ(wait.awake(), SpinWait::kLeast);
  for (int i = 0; i < 50; ++i) wait.learn(microseconds(20));
  EXPECT_GT(wait.awake(), microseconds(30)) << "short waits come again";
  for (int i = 0; i < 50; ++i) wait.learn(microseconds(90));
  EXPECT_EQ(wait.awake(), SpinWait::kMost);
}

TEST(SpinWait, SaysWhetherItCameTrue) {
  SpinWait wait;
  EXPECT_TRUE(wait.spin([] { return true; }));
  EXPECT_FALSE(wait.spin([] { return false; }));
  int looks = 0;
  EXPECT_TRUE(wait.spin([&] { return ++looks == 3; }));
}

}  // namespace
}  // namespace ulp::runtime
