// Plans and calls that mean harm, or are simply wrong: each is an error, or is computed within its buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "error_of.h"
#include "support.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

using ulp::test::error_of;

Plan relu_of(std::vector<int64_t> shape) {
  Builder b(Numbers::f32);
  b.output(b.op(Op::relu, {b.input(std::move(shape))}, ActivationAttributes{Activation::relu}));
  return std::move(b.plan);
}

TEST(Hostile, AFixedFirstDimensionIsNeverCutIntoSlices) {
  const Plan plan = relu_of({6, 4});
  constexpr size_t kOwn = 24, kRoom = 8000;
  std::vector<float> in(kRoom, -1.0F), out(kRoom, 7.0F);
  std::fill_n(in.begin(), kOwn, 2.0F);
  const void* input = in.data();
  void* output = out.data();
  Engine engine(plan, {.threads = 2});
  engine.run(1000, {&input, 1}, {&output, 1});
  for (size_t i = 0; i < kOwn; ++i) ASSERT_EQ(out[i], 2.0F) << i;
  for (size_t i = kOwn; i < kRoom; ++i) ASSERT_EQ(out[i], 7.0F) << "written outside the output at " << i;
}

TEST(Hostile, TheBatchAndAFixedSizeShareNoMemory) {
  Builder b(Numbers::f32);
  const int32_t x = b.op(Op::relu, {b.input({1, 4})}, ActivationAttributes{Activation::relu});
  const int32_t y = b.op(Op::relu, {b.input({kBatch, 4})}, ActivationAttributes{Activation::relu});
  b.output(b.op(Op::relu, {x}, ActivationAttributes{Activation::relu}));
  b.output(b.op(Op::relu, {y}, ActivationAttributes{Activation::relu}));
  Engine engine(b.plan, {.threads = 1});
  const std::vector<Bytes> inputs = make_inputs(b.plan, 9, 3);
  const std::vector<Bytes> expected = run_plainly(b.plan, 9, inputs), got = run_engine(engine, 9, inputs);
  for (size_t i = 0; i < expected.size(); ++i) expect_same(engine.outputs()[i], expected[i], got[i]);
}

TEST(Hostile, PlansNestedWithoutEndAreRefused) {
  const std::string deep(200000, '[');
  try {
    static_cast<void>(plan_from_json(deep));
    ADD_FAILURE() << "read";
  } catch (const PlanProblem& problem) {
    EXPECT_SAYS(problem.text, "nested deeper than 64 levels");
  }
  const std::string closed = "{\"steps\": " + deep + std::string(200000, ']') + "}";
  EXPECT_THROW(static_cast<void>(plan_from_json(closed)), PlanProblem);
}

TEST(Hostile, ASmallPlanTakesNoGreatTables) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 1, 1, 1}, DataType::f32, Layout::nhwc);
  b.output(b.op(Op::resize_nearest, {x}, NearestAttributes{.size_h = int64_t{1} << 28, .size_w = 1}));
  const std::string said = error_of([&] { Engine engine(b.plan); });
  EXPECT_SAYS(said, "max_constant_bytes");
  EXPECT_SAYS(said, "resize_nearest");
}

TEST(Hostile, AConstantIsPackedOnceForStepsThatAreAlike) {
  Builder b(Numbers::f32);
  int32_t x = b.linear(b.input({kBatch, 64}), 64);
  const Step first = b.plan.steps.back();
  for (int i = 0; i < 40; ++i) {
    Step step = first;
    step.name = "again" + std::to_string(i);
    step.inputs = {x};
    step.output = static_cast<int32_t>(b.plan.tensors.size());
    b.plan.tensors.push_back(b.info(x));
    b.plan.steps.push_back(step);
    x = step.output;
  }
  b.output(x);
  const size_t once = 2 * (64 * 64 + 64) * sizeof(float);
  const std::vector<Bytes> inputs = make_inputs(b.plan, 2, 5);
  Engine engine(b.plan, {.max_constant_bytes = once});
  EXPECT_EQ(run_engine(engine, 2, inputs).size(), 1U);
  EXPECT_SAYS(error_of([&] { Engine small(b.plan, {.max_constant_bytes = once - 1}); }), "got 33280 more");
  // Another use of the same constant is packed on its own.
  b.plan.steps[5].attributes = ActivationAttributes{Activation::relu};
  EXPECT_SAYS(error_of([&] { Engine two(b.plan, {.max_constant_bytes = once}); }), "step 'again4'");
}

TEST(Hostile, IntermediatesStayWithinTheirLimit) {
  const Plan plan = small_network(Numbers::f32);
  Engine engine(plan, {.max_arena_bytes = size_t{1} << 20});
  run_engine(engine, 1, make_inputs(plan, 1, 1));
  Engine small(plan, {.max_arena_bytes = 64});
  EXPECT_SAYS(error_of([&] { small.reserve(1); }), "intermediates of at most 64 bytes");
}

TEST(Hostile, ABatchBeyondMemoryIsRefusedBeforeItsIdsAreRead) {
  const Plan plan = small_text_network();
  Engine engine(plan);
  const std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  std::vector<Bytes> outputs;
  std::vector<void*> out;
  for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, 1));
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  for (const int64_t batch : {int64_t{1} << 57, std::numeric_limits<int64_t>::max()}) {
    EXPECT_SAYS(error_of([&] { engine.run(batch, in, out); }), "intermediates fit the memory");
    EXPECT_SAYS(error_of([&] { engine.profile(batch, in, out); }), "intermediates fit the memory");
    EXPECT_SAYS(error_of([&] { engine.reserve(batch); }), "intermediates fit the memory");
  }
}

TEST(Hostile, AnEngineThatWasMovedFromSaysSo) {
  Engine engine(relu_of({kBatch, 4}));
  const Engine other = std::move(engine);
  EXPECT_SAYS(error_of([&] { engine.reserve(1); }), "moved from");
  EXPECT_SAYS(error_of([&] { static_cast<void>(engine.inputs()); }), "moved from");
  EXPECT_SAYS(error_of([&] { engine.run(1, {}, {}); }), "moved from");
  EXPECT_SAYS(error_of([&] { Context context(engine); }), "moved from");
  EXPECT_EQ(other.inputs().size(), 1U);
  Context context(other);
  const Context kept = std::move(context);
  EXPECT_SAYS(error_of([&] { context.reserve(1); }), "moved from");
  EXPECT_EQ(kept.threads(), 1);
}

/// Calls back from within a step, as a second thread might.
class Reentrant final : public Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    if (const auto call = std::exchange(again, nullptr)) said = error_of(call);
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
  }
  mutable std::function<void()> again;
  mutable std::string said;
};

TEST(Hostile, ACallThatMeetsAnotherThrows) {
  const Plan plan = small_network(Numbers::f32);
  Reentrant parallel;
  Engine engine(plan, {.parallel = &parallel});
  const std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  const std::vector<Bytes> expected = run_engine(engine, 1, inputs);
  parallel.again = [&] { engine.reserve(2); };
  const std::vector<Bytes> got = run_engine(engine, 1, inputs);
  EXPECT_SAYS(parallel.said, "one call at a time");
  EXPECT_EQ(got, expected) << "the first call goes on";
  EXPECT_NO_THROW(engine.reserve(2));
}

}  // namespace
}  // namespace ulp::runtime
