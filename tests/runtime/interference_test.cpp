// Results do not depend on which thread computes what, nor on when: threads are put to sleep with pieces in
// their hands.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "support.h"
#include "ulp/runtime/engine/piece_hook.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

std::atomic<int64_t> pieces_taken = 0, naps_taken = 0;

/// One piece of 16 waits up to 0.4 ms, which is longer than most of these layers take.
void nap_now_and_then() {
  uint64_t draw = static_cast<uint64_t>(pieces_taken.fetch_add(1)) * 0x9E3779B97F4A7C15ULL;
  draw ^= draw >> 29;
  if (draw % 16 != 0) return;
  ++naps_taken;
  std::this_thread::sleep_for(std::chrono::microseconds(draw / 16 % 400));
}

/// Threads nap while it lives.
class Naps {
 public:
  Naps() {
    pieces_taken = naps_taken = 0;
    set_piece_hook(nap_now_and_then);
  }
  ~Naps() { set_piece_hook(nullptr); }
  Naps(const Naps&) = delete;
  Naps& operator=(const Naps&) = delete;
};

float rough(float value, uint64_t place) {
  return value + 0.01F * static_cast<float>((place * 2654435761U >> 7) % 97) - 0.48F;
}

/// Weights whose sums are rounded, so that another order of summation would give other bits.
Plan roughened(Plan plan) {
  for (auto& [name, constant] : plan.constants) {
    if (constant.type != DataType::f32 || name.ends_with("scale")) continue;
    auto* values = reinterpret_cast<float*>(constant.bytes.data());
    for (size_t i = 0; i < constant.bytes.size() / sizeof(float); ++i) values[i] = rough(values[i], i);
  }
  return plan;
}

std::vector<Bytes> rough_inputs(const Plan& plan, int64_t batch) {
  std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (plan.tensors[static_cast<size_t>(plan.inputs[i])].type != DataType::f32) continue;
    auto* values = reinterpret_cast<float*>(inputs[i].data());
    for (size_t k = 0; k < inputs[i].size() / sizeof(float); ++k) values[k] = rough(values[k], k);
  }
  return inputs;
}

/// Convolutions of several kinds, wide enough to be shared.
Plan wide_convolutions(Numbers numbers) {
  Builder b(numbers);
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, point{};
  const int32_t x = b.conv(b.enter(b.input({kBatch, 3, 24, 24})), 48, same, Activation::relu);
  const int32_t inner = b.conv(b.conv(x, 64, point), 64, same, Activation::relu, 64);
  const int32_t sum = b.conv(b.conv(inner, 48, same, Activation::relu), 48, same, Activation::relu, 1, x);
  b.output(b.leave(sum));
  return b.plan;
}

/// A block of a transformer, in fp32 or with dynamic int8.
Plan wide_attention(bool int8) {
  constexpr int64_t kWidth = 64, kLength = 48;
  Builder b(Numbers::f32);
  const auto norm = [&](int32_t x) {
    return b.text({.op = Op::layer_norm, .inputs = {x}, .attributes = LayerNormAttributes{1e-3F}},
                  {{"weight", {kWidth}}, {"bias", {kWidth}}});
  };
  const auto linear = [&](std::vector<int32_t> inputs, int64_t out, Activation activation) {
    if (!int8) return b.linear(inputs[0], out, activation);
    const int64_t in = b.info(inputs[0]).shape.back();
    return b.text(
        {.op = Op::dynamic_linear, .inputs = inputs, .attributes = DynamicLinearAttributes{activation}},
        {{"weight", {out, in}}, {"weight_scale", {out}}, {"bias", {out}}});
  };
  const int32_t x = norm(b.input({kBatch, kLength, kWidth}));
  const int32_t q = linear({x}, kWidth, Activation::none), k = linear({x}, kWidth, Activation::none);
  const int32_t v = linear({x}, kWidth, Activation::none);
  const int32_t mixed =
      b.text({.op = Op::attention, .inputs = {q, k, v}, .attributes = AttentionAttributes{4, 0.25F}});
  const int32_t wide = linear({norm(mixed)}, 4 * kWidth, Activation::gelu);
  b.output(norm(linear({wide}, kWidth, Activation::none)));
  return b.plan;
}

Plan wide_recurrence(bool int8) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 6, 40});
  const int32_t first = b.recurrent(Op::lstm, x, 64, int8);
  b.output(b.linear(b.recurrent(Op::gru, first, 32, int8, true), 16));
  return b.plan;
}

std::vector<Plan> wide_networks() {
  std::vector<Plan> plans;
  for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8})
    plans.push_back(wide_convolutions(numbers));
  for (const bool int8 : {false, true}) {
    plans.push_back(wide_attention(int8));
    plans.push_back(wide_recurrence(int8));
  }
  plans.push_back(small_binary_network());
  for (Plan& plan : plans) plan = roughened(std::move(plan));
  return plans;
}

TEST(Interference, SleepingThreadsChangeNoBit) {
  int64_t pieces = 0, naps = 0;
  for (const Plan& plan : wide_networks()) {
    Engine alone(plan, {.threads = 1});
    for (const int64_t batch : {1, 3, 24}) {
      const std::vector<Bytes> inputs = rough_inputs(plan, batch);
      const std::vector<Bytes> expected = run_engine(alone, batch, inputs);
      const Naps napping;
      for (int threads = 1; threads <= 5; ++threads) {
        Context context(alone, {.threads = threads, .own_threads = threads % 2 == 0});
        for (int turn = 0; turn < 2; ++turn)
          ASSERT_EQ(run_context(alone, context, batch, inputs), expected)
              << plan.steps.front().name << ", batch " << batch << ", " << threads << " threads";
      }
      pieces += pieces_taken;
      naps += naps_taken;
    }
  }
  EXPECT_GT(pieces, 1000);
  EXPECT_GT(naps, 10);
}

TEST(Interference, TheThreadsOfOtherEnginesChangeNoBit) {
  const std::vector<Plan> plans = wide_networks();
  constexpr int64_t kItems = 3;
  const Naps naps;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (size_t i = 0; i < 2 * plans.size(); ++i) {
    callers.emplace_back([&, i] {
      const Plan& plan = plans[i % plans.size()];
      const std::vector<Bytes> inputs = rough_inputs(plan, kItems);
      Engine engine(plan, {.threads = static_cast<int>(2 + i % 4)});
      Engine alone(plan, {.threads = 1});
      const std::vector<Bytes> expected = run_engine(alone, kItems, inputs);
      for (int turn = 0; turn < 6; ++turn) {
        Context context(engine, {.threads = 3});  // comes and goes
        wrong += run_engine(engine, kItems, inputs) != expected;
        wrong += run_context(engine, context, kItems, inputs) != expected;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(naps_taken, 0);
}

/// A thread that sleeps in the middle of a run holds up nothing but its own piece.
std::atomic<bool> one_sleeps = false, slept_in_vain = false;
std::atomic<int> done_meanwhile = 0;

void first_piece_sleeps() {
  if (one_sleeps.exchange(true)) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (done_meanwhile < 9 && !slept_in_vain) {
    std::this_thread::yield();
    slept_in_vain = std::chrono::steady_clock::now() > end;
  }
}

TEST(Interference, OthersTakeAllButThePieceOfASleeper) {
  for (const PoolThreads whose : {PoolThreads::own, PoolThreads::shared}) {
    const ThreadPool pool(2, whose);
    one_sleeps = slept_in_vain = false;
    done_meanwhile = 0;
    set_piece_hook(first_piece_sleeps);
    std::set<int> workers;
    std::mutex lock;
    pool.run(10, [&](int64_t, int worker) {
      const std::lock_guard guard(lock);
      workers.insert(worker);
      ++done_meanwhile;
    });
    set_piece_hook(nullptr);
    EXPECT_FALSE(slept_in_vain) << "the other thread left pieces to the one that slept";
    EXPECT_EQ(workers.size(), 2U);
  }
}

}  // namespace
}  // namespace ulp::runtime
