// How many threads compute a run, on machines whose times are given.
#include "ulp/runtime/engine/worker_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

namespace {

using ulp::runtime::WorkerChoice;

/// Seconds of a run by so many threads.
using Machine = std::function<double(int workers)>;

/// Runs for so long. How many of the runs had each number of threads.
std::vector<int> run_for(WorkerChoice& choice, double seconds, int most, const Machine& machine) {
  std::vector<int> runs(static_cast<size_t>(most) + 1);
  for (double past = 0; past < seconds;) {
    const int workers = choice.workers();
    if (workers < 1 || workers > most) throw std::out_of_range("threads");
    ++runs[static_cast<size_t>(workers)];
    const double one = machine(workers);
    choice.ran(one);
    past += one;
  }
  return runs;
}

double share(const std::vector<int>& runs, int workers) {
  double all = 0;
  for (const int count : runs) all += count;
  return runs[static_cast<size_t>(workers)] / all;
}

double quiet(int workers) {
  return 4e-3 / workers;
}
/// One of two cores is busy: its thread holds up the other.
double beside_one(int workers) {
  return workers == 1 ? 4.1e-3 : 5.2e-3;
}

TEST(WorkerChoice, OnAQuietMachineAllCompute) {
  WorkerChoice choice(2);
  int count = 0;
  const auto wavering = [&](int workers) { return quiet(workers) * (1 + 0.1 * std::sin(++count)); };
  EXPECT_EQ(share(run_for(choice, 20, 2, wavering), 2), 1);
}

TEST(WorkerChoice, FewerComputeWhereTheyAreFasterAndAllWhereItIsQuietAgain) {
  WorkerChoice choice(2);
  run_for(choice, 1, 2, quiet);
  EXPECT_GE(share(run_for(choice, 5, 2, beside_one), 1), 0.85);
  run_for(choice, 1, 2, quiet);  // within 32 windows of some 20 ms
  EXPECT_EQ(share(run_for(choice, 5, 2, quiet), 2), 1);
  EXPECT_GE(share(run_for(choice, 5, 2, beside_one), 1), 0.85) << "once more";
}

double used = 0;
double used_so_far() {
  return used;
}

TEST(WorkerChoice, AMachineThatWasBusyFromTheStartIsSeen) {
  for (const double cores : {1.0, 1.9}) {
    WorkerChoice choice(2, used_so_far);
    const auto machine = [&](int workers) {
      const double time = beside_one(workers);
      used += time * std::min<double>(workers, cores);
      return time;
    };
    const double alone = share(run_for(choice, 5, 2, machine), 1);
    if (cores < 1.5) {
      EXPECT_GE(alone, 0.85);
    } else {
      EXPECT_EQ(alone, 0) << "both cores are used: it is quiet";
    }
  }
}

TEST(WorkerChoice, AllComputeWhereTheyAreFasterOnABusyMachine) {
  WorkerChoice choice(2);
  run_for(choice, 1, 2, quiet);
  const auto shared = [](int workers) { return workers == 1 ? 4.1e-3 : 2.9e-3; };
  EXPECT_GE(share(run_for(choice, 10, 2, shared), 2), 0.95);
}

TEST(WorkerChoice, ASlowerProcessorIsNoBusyOne) {
  WorkerChoice choice(2);
  run_for(choice, 1, 2, quiet);
  const auto slow = [](int workers) { return 1.4 * quiet(workers); };
  run_for(choice, 10, 2, slow);
  EXPECT_GE(share(run_for(choice, 10, 2, slow), 2), 0.98) << "the quiet time is forgotten";
}

TEST(WorkerChoice, OfManyThreadsThoseLeaveThatHoldUpTheOthers) {
  WorkerChoice choice(8);
  const auto eight = [](int workers) { return 40e-3 / workers; };
  run_for(choice, 2, 8, eight);
  const auto two_are_busy = [](int workers) { return workers <= 6 ? 40e-3 / workers : 12e-3; };
  run_for(choice, 4, 8, two_are_busy);
  EXPECT_GE(share(run_for(choice, 10, 8, two_are_busy), 6), 0.8);
  run_for(choice, 4, 8, eight);
  EXPECT_EQ(share(run_for(choice, 4, 8, eight), 8), 1);
}

TEST(WorkerChoice, LongRunsAreAWindowEach) {
  WorkerChoice choice(2);
  for (int i = 0; i < 3; ++i) choice.ran(0.3);
  EXPECT_EQ(choice.workers(), 2);
  choice.ran(0.5);
  EXPECT_EQ(choice.workers(), 1) << "tried";
  choice.ran(0.6);
  EXPECT_EQ(choice.workers(), 2) << "it did not pay";
  choice.forget();
  choice.ran(0.5);
  EXPECT_EQ(choice.workers(), 2) << "of another kind";
}

TEST(WorkerChoice, OneThreadStaysOne) {
  WorkerChoice choice(1);
  run_for(choice, 1, 1, [](int) { return 1e-3; });
  EXPECT_EQ(choice.workers(), 1);
}

}  // namespace
