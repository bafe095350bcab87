#include "ulp/runtime/engine/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "error_of.h"
#include "support.h"
#include "ulp/base/cpu_limits.h"
#include "ulp/runtime/engine/piece_hook.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

using ulp::test::error_of;

std::vector<Plan> networks() {
  std::vector<Plan> plans;
  for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8})
    plans.push_back(small_network(numbers));
  plans.push_back(small_text_network());
  plans.push_back(small_binary_network());
  return plans;
}

TEST(Contexts, ManyAtOnceGiveTheBitsOfOne) {
  constexpr size_t kCallers = 8;
  for (const Plan& plan : networks()) {
    Engine engine(plan, {.threads = 1});
    std::vector<std::vector<Bytes>> expected(kCallers), got(kCallers), inputs(kCallers);
    for (size_t i = 0; i < kCallers; ++i) {
      const auto batch = static_cast<int64_t>(i + 1);
      inputs[i] = make_inputs(plan, batch, i);
      expected[i] = run_engine(engine, batch, inputs[i]);
    }
    std::vector<std::thread> callers;
    for (size_t i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] {
        Context context(engine, {.threads = i % 2 == 0 ? 1 : 2});
        for (int turn = 0; turn < 10; ++turn) {
          got[i] = run_context(engine, context, static_cast<int64_t>(i + 1), inputs[i]);
          if (got[i] != expected[i]) return;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(got, expected);
  }
}

TEST(Contexts, OnePoolServesSeveral) {
  const Plan plan = small_network(Numbers::f32);
  const ThreadPool pool(2);
  Engine engine(plan, {.parallel = &pool});
  Context context(engine, {.parallel = &pool});
  const std::vector<Bytes> inputs = make_inputs(plan, 3, 1);
  const std::vector<Bytes> expected = run_engine(engine, 3, inputs);
  std::vector<Bytes> got;
  std::thread other([&] { got = run_context(engine, context, 3, inputs); });
  EXPECT_EQ(run_engine(engine, 3, inputs), expected);
  other.join();
  EXPECT_EQ(got, expected);
  EXPECT_EQ(context.threads(), 2);
}

/// Two workers on one thread, which remember how many tasks they were given.
class TwoInTurn final : public Parallel {
 public:
  int workers() const override { return 2; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    largest = std::max(largest, tasks);
    for (int64_t i = 0; i < tasks; ++i) task(i, static_cast<int>(i % 2));
  }
  mutable int64_t largest = 0;
};

TEST(Contexts, LargeBatchesHaveTwoSlicesForEachWorker) {
  Builder b(Numbers::f32);
  b.output(b.linear(b.input({kBatch, 4}), 4));
  Engine alone(b.plan, {.threads = 1});
  const TwoInTurn two;
  Context context(alone, {.parallel = &two});
  const std::vector<std::pair<int64_t, int64_t>> slices_of_batch = {{8, 2}, {14, 2}, {16, 4}, {64, 4}};
  for (const auto& [batch, slices] : slices_of_batch) {
    const std::vector<Bytes> inputs = make_inputs(b.plan, batch, 1);
    two.largest = 0;
    EXPECT_EQ(run_context(alone, context, batch, inputs), run_engine(alone, batch, inputs)) << batch;
    EXPECT_EQ(two.largest, slices) << batch;
  }
}

thread_local bool stays_in_its_run = false;
std::atomic<int> contexts_in_runs = 0;
std::atomic<bool> contexts_may_end = false;

void stay_in_the_run() {
  if (!stays_in_its_run) return;
  ++contexts_in_runs;
  comes_true([] { return contexts_may_end.load(); });
}

TEST(Contexts, ThoseOfOneThreadTakeCoresToo) {
  constexpr int kThreads = 4;
  const int count = std::max(usable_cores(), kThreads);
  const Plan plan = small_network(Numbers::f32);
  const Engine engine(plan, {.threads = 1});
  const std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  const ThreadPool pool(kThreads, PoolThreads::shared);
  contexts_in_runs = 0;
  contexts_may_end = false;
  set_piece_hook(stay_in_the_run);
  std::vector<std::thread> callers;
  for (int i = 0; i < count; ++i) {
    callers.emplace_back([&] {
      Context context(engine);
      stays_in_its_run = true;
      run_context(engine, context, 1, inputs);
    });
  }
  EXPECT_TRUE(comes_true([&] { return contexts_in_runs >= count; }));
  EXPECT_FALSE(gets_help(pool, kThreads, std::chrono::milliseconds(20)));
  contexts_may_end = true;
  for (std::thread& caller : callers) caller.join();
  set_piece_hook(nullptr);
  EXPECT_TRUE(comes_true([&] { return gets_help(pool, kThreads, std::chrono::milliseconds(50)); }));
}

TEST(Contexts, AContextOutlivesItsEngine) {
  const Plan plan = small_network(Numbers::u8);
  auto engine = std::make_unique<Engine>(plan, EngineOptions{.threads = 1});
  const Engine other(plan, {.threads = 1});
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  const std::vector<Bytes> expected = run_engine(*engine, 2, inputs);
  Context context(*engine);
  engine.reset();
  EXPECT_EQ(run_context(other, context, 2, inputs), expected);
}

TEST(Contexts, TheSmallerLimitHolds) {
  const Plan plan = small_network(Numbers::f32);
  const Engine engine(plan, {.max_arena_bytes = size_t{1} << 20}), tight(plan, {.max_arena_bytes = 64});
  Context small(engine, {.max_arena_bytes = 64}), large(tight, {.max_arena_bytes = size_t{1} << 20}),
      enough(engine);
  EXPECT_SAYS(error_of([&] { small.reserve(1); }), "intermediates of at most 64 bytes");
  EXPECT_SAYS(error_of([&] { large.reserve(1); }), "intermediates of at most 64 bytes");
  EXPECT_NO_THROW(enough.reserve(1));
}

TEST(Contexts, AFailedCallLeavesTheContextUsable) {
  const Plan plan = small_text_network();
  Engine engine(plan, {.threads = 1});
  Context context(engine);
  std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  const std::vector<Bytes> expected = run_engine(engine, 2, inputs);
  std::vector<Bytes> bad = inputs;
  std::fill(bad[0].begin(), bad[0].end(), std::byte{0x7f});
  EXPECT_SAYS(error_of([&] { run_context(engine, context, 2, bad); }), "expected ids in");
  EXPECT_SAYS(error_of([&] { context.run(0, {}, {}); }), "batch of at least 1");
  EXPECT_EQ(run_context(engine, context, 2, inputs), expected);
}

}  // namespace
}  // namespace ulp::runtime
