// Rows of the batch (TensorInfo::times and outer): engine against plain loops, files, and what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "support.h"
#include "ulp/runtime/plan/plan_json.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;
using ulp::test::error_of;

constexpr int64_t kTime = 5;

/// The same, whose result has so many rows for each item, `outer` of them before the batch.
int32_t with_rows(Builder& b, int32_t x, int64_t times, int64_t outer = 1) {
  TensorInfo& info = b.plan.tensors[static_cast<size_t>(x)];
  info.times = times;
  info.outer = outer;
  return x;
}

int32_t rows_of_time(Builder& b, int32_t x) {
  return with_rows(b, b.op(Op::regroup, {x}, RegroupAttributes{1}), kTime);
}

/// Layers over rows that are batch x time, the rows and what they are apart again.
Builder batch_by_time() {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, kTime, 4});
  const int32_t rows = with_rows(b, b.linear(rows_of_time(b, x), 6, Activation::relu), kTime);
  b.output(rows);
  b.output(b.linear(b.op(Op::regroup, {rows}, RegroupAttributes{}), 3));
  return b;
}

/// The same rows in both orders: batch x time, and time x batch.
Builder both_orders() {
  Builder b(Numbers::f32);
  const int32_t x = b.linear(b.input({kBatch, kTime, 4}), 6);
  b.output(rows_of_time(b, x));
  const int32_t turned = b.op(Op::move_batch, {x}, MoveBatchAttributes{1});
  b.output(with_rows(b, b.op(Op::regroup, {turned}, RegroupAttributes{}), kTime, kTime));
  return b;
}

/// Rows of [2, batch, 3, 4]: 2 before the batch, 3 behind it.
Builder both_sides() {
  Builder b(Numbers::f32);
  b.output(with_rows(b, b.op(Op::regroup, {b.input({2, kBatch, 3, 4})}, RegroupAttributes{1}), 6, 2));
  return b;
}

/// Rows of [2, 3, batch, 5, 4] in dimension 1: 3 before the batch, 5 behind it.
Builder second_dimension() {
  Builder b(Numbers::f32);
  const int32_t x = b.input({2, 3, kBatch, kTime, 4});
  b.output(with_rows(b, b.op(Op::regroup, {x}, RegroupAttributes{1, 1}), 3 * kTime, 3));
  return b;
}

void expect_as_plain_loops(const Plan& plan) {
  for (const int threads : {1, 3}) {
    Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {1, 3, 24}) {
      const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
      EXPECT_EQ(run_engine(engine, batch, inputs), run_plainly(plan, batch, inputs))
          << batch << " on " << threads;
    }
  }
}

TEST(Regroup, GivesTheResultsOfPlainLoops) {
  expect_as_plain_loops(batch_by_time().plan);
  expect_as_plain_loops(both_orders().plan);
  expect_as_plain_loops(both_sides().plan);
}

TEST(Regroup, OuterRowsStandBeforeTheBatch) {
  const Plan plan = both_orders().plan;
  Engine engine(plan, {.threads = 2});
  EXPECT_EQ(engine.outputs()[0].outer, 1);
  EXPECT_EQ(engine.outputs()[1].outer, kTime);
  for (const int64_t batch : {1, 3, 24}) {
    const std::vector<Bytes> got = run_engine(engine, batch, make_inputs(plan, batch, 7));
    const size_t row = 6 * sizeof(float);
    ASSERT_EQ(got[0].size(), static_cast<size_t>(batch * kTime) * row);
    ASSERT_EQ(got[1].size(), got[0].size());
    for (int64_t item = 0; item < batch; ++item) {
      for (int64_t time = 0; time < kTime; ++time) {
        const auto by_batch = static_cast<size_t>(item * kTime + time) * row;
        const auto by_time = static_cast<size_t>(time * batch + item) * row;
        ASSERT_EQ(std::memcmp(got[0].data() + by_batch, got[1].data() + by_time, row), 0)
            << "item " << item << " of " << batch << ", time " << time;
      }
    }
  }
}

/// Three workers on one thread, which remember how often they were called.
class ThreeInTurn final : public Parallel {
 public:
  int workers() const override { return 3; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    ++runs;
    for (int64_t i = 0; i < tasks; ++i) task(i, static_cast<int>(i % 3));
  }
  mutable int runs = 0;
};

TEST(Regroup, LargeBatchesAreCutIntoSlicesUnlessRowsStandBeforeTheBatch) {
  const ThreeInTurn three;
  const auto runs_of = [&](const Plan& plan) {
    Engine engine(plan, {.parallel = &three});
    const std::vector<Bytes> inputs = make_inputs(plan, 24, 3);
    three.runs = 0;
    EXPECT_EQ(run_engine(engine, 24, inputs), run_plainly(plan, 24, inputs));
    return three.runs;
  };
  EXPECT_EQ(runs_of(batch_by_time().plan), 1);
  EXPECT_GT(runs_of(both_orders().plan), 1);
}

TEST(Regroup, FilesHoldTheRows) {
  const TemporaryFolder folder;
  for (const Plan& plan :
       {batch_by_time().plan, both_orders().plan, both_sides().plan, second_dimension().plan}) {
    plan.save(folder / "plan.ulp");
    const Plan loaded = Plan::load(folder / "plan.ulp");
    ASSERT_EQ(loaded.tensors.size(), plan.tensors.size());
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      EXPECT_EQ(loaded.tensors[i].times, plan.tensors[i].times) << i;
      EXPECT_EQ(loaded.tensors[i].outer, plan.tensors[i].outer) << i;
    }
    Engine engine(loaded, {.threads = 1});
    const std::vector<Bytes> inputs = make_inputs(plan, 3, 7);
    EXPECT_EQ(run_engine(engine, 3, inputs), run_plainly(plan, 3, inputs));
  }
  const nlohmann::json tensors = nlohmann::json::parse(plan_to_json(both_sides().plan)).at("tensors");
  EXPECT_FALSE(tensors[0].contains("times") || tensors[0].contains("outer"));
  EXPECT_EQ(tensors[1].at("times"), 6);
  EXPECT_EQ(tensors[1].at("outer"), 2);
}

TEST(Regroup, RowsOfTheSecondDimension) {
  const Plan plan = second_dimension().plan;
  const TensorInfo& rows = plan.tensors[1];
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{2, kBatch, 4}));
  EXPECT_EQ(sizes_at(rows, 7), (std::vector<int64_t>{2, 7 * 3 * kTime, 4}));
  EXPECT_EQ(batch_in(rows, sizes_at(rows, 7)), 7);
  expect_as_plain_loops(plan);
}

TEST(Regroup, NumbersBeyond64BitsAreRefused) {
  const TensorInfo rows{.name = "rows", .type = DataType::f32, .shape = {kBatch, 4}, .times = kTime};
  constexpr int64_t kMost = INT64_MAX;
  EXPECT_EQ(sizes_at(rows, kMost / 5)[0], kMost / 5 * 5);
  EXPECT_EQ(element_count(rows, kMost / 20), kMost / 20 * 20);
  EXPECT_EQ(byte_count(rows, kMost / 80), static_cast<size_t>(kMost / 80 * 80));
  const auto expect_refused = [](const char* where, const auto& call) {
    EXPECT_SAYS(error_of(call),
                std::string("[runtime.") + where + "] expected a batch that memory can hold, got ");
    EXPECT_SAYS(error_of(call), "for 'rows' [batch * 5, 4]");
  };
  for (const int64_t beyond : {int64_t{1}, kMost - kMost / 5}) {
    expect_refused("sizes_at", [&] { sizes_at(rows, kMost / 5 + beyond); });
    expect_refused("element_count", [&] { element_count(rows, kMost / 20 + beyond); });
    expect_refused("byte_count", [&] { byte_count(rows, kMost / 80 + 1); });
  }
}

/// A change to a plan and a part of the error it must give.
struct BadRows {
  const char* what;
  std::function<void(Plan&)> change;
  const char* message;
};

void expect_rows_refused(const Plan& good, const std::vector<BadRows>& all) {
  ASSERT_NO_THROW(good.verify());
  for (const BadRows& bad : all) {
    Plan plan = good;
    bad.change(plan);
    EXPECT_SAYS(error_of([&] { plan.verify(); }), bad.message) << bad.what;
  }
}

TEST(Regroup, BadRowsOfTensorsAreRefused) {
  constexpr const char* kRows = "expected rows of a dimension that is the batch, got times ";
  // Tensors: x, rows, linear of rows, apart, linear. Steps: regroup, linear, regroup, linear.
  expect_rows_refused(
      batch_by_time().plan,
      {{"no rows", [](Plan& p) { p.tensors[1].times = 0; }, kRows},
       {"fewer than none", [](Plan& p) { p.tensors[1].times = -5; }, kRows},
       {"none before", [](Plan& p) { p.tensors[1].outer = 0; }, kRows},
       {"a part of the rows before", [](Plan& p) { p.tensors[1].outer = 2; }, "got times 5 and outer 2"},
       {"more before than there are", [](Plan& p) { p.tensors[1].outer = 10; }, "got times 5 and outer 10"},
       {"rows of another dimension",
        [](Plan& p) {
          p.tensors[0].shape = {kTime, kBatch, 4};
          p.tensors[0].times = 2;
        },
        "expected an input of layout plain with 0 dimensions before the batch and 1 behind it"},
       {"rows without a batch",
        [](Plan& p) {
          p.tensors[0].shape = {3, kTime, 4};
          p.tensors[0].times = 3;
        },
        kRows},
       {"too many", [](Plan& p) { p.tensors[1].times = int64_t{1} << 40; }, "elements per item"},
       {"a product beyond 64 bits", [](Plan& p) { p.tensors[1].times = INT64_MAX; }, "elements per item"}});
}

TEST(Regroup, BadStepsAreRefused) {
  const auto joined = [](Plan& p) -> int64_t& { return p.steps[0].get<RegroupAttributes>().joined; };
  expect_rows_refused(
      batch_by_time().plan,
      {{"fewer rows", [](Plan& p) { p.tensors[1].times = 1; },
        "expected 5 rows for each item, 1 of them before the batch, got 1 and 1"},
       {"rows before the batch", [](Plan& p) { p.tensors[1].outer = kTime; }, "got 5 and 5"},
       {"as many dimensions as there are", [=](Plan& p) { joined(p) = 3; },
        "layout plain with 0 dimensions before the batch and 3 behind it"},
       {"dimensions that are not there", [](Plan& p) { p.steps[0].get<RegroupAttributes>().kept = 1; },
        "layout plain with 1 dimensions before the batch and 1 behind it"},
       {"a negative number of dimensions", [](Plan& p) { p.steps[0].get<RegroupAttributes>().kept = -1; },
        "expected kept in [0, 8], got -1"},
       {"the last dimension", [=](Plan& p) { joined(p) = 2; }, "expected an output of shape [batch]"},
       {"a negative number", [=](Plan& p) { joined(p) = -1; }, "expected joined in [0, 8], got -1"},
       {"none of rows", [=](Plan& p) { joined(p) = 0; }, "expected an output of shape [batch, 20]"},
       {"no batch",
        [](Plan& p) {
          p.tensors[0].shape = {3, kTime, 4};
        },
        "expected an input with a batch"},
       {"rows of rows", [](Plan& p) { p.tensors[0].times = 2; }, "expected an input of layout plain"},
       {"another type", [](Plan& p) { p.tensors[1].type = DataType::bf16; },
        "expected an output of type f32"},
       {"one row of many", [](Plan& p) { p.tensors[2].times = 1; },
        "expected 5 rows for each item in all of its tensors, got [batch, 6]"},
       {"more rows than there are", [](Plan& p) { p.tensors[2].times = 10; },
        "expected 10 rows for each item in all of its tensors, got [batch * 5, 4]"},
       {"taken apart wrongly", [](Plan& p) { p.tensors[3].shape[1] = 6; },
        "expected an output of shape [batch, 30], got [batch, 6]"},
       {"taken apart and still rows", [](Plan& p) { p.tensors[3].times = kTime; },
        "expected 1 rows for each item"}});
  const Plan orders = both_orders().plan;
  const auto last = static_cast<int32_t>(orders.tensors.size()) - 1;
  expect_rows_refused(
      orders, {{"a layer over rows before the batch",
                [=](Plan& p) {
                  p.tensors.push_back(p.tensors.back());
                  p.steps.push_back({.op = Op::relu, .name = "r", .inputs = {last}, .output = last + 1});
                },
                "rows for each item in all of its tensors, got [5 * batch, 6]"},
               {"rows before the batch, taken apart",
                [=](Plan& p) {
                  p.tensors.push_back({"t", DataType::f32, {kBatch, 30}});
                  p.steps.push_back({.op = Op::regroup, .name = "r", .inputs = {last}, .output = last + 1});
                },
                "and no rows before it"}});
}

TEST(Regroup, ImagesAndCodesKeepTheirNumbers) {
  Builder b(Numbers::u8);
  const int32_t films = b.enter(b.input({kBatch, kTime, 3, 2}), Layout::plain);
  const int32_t frames = b.op(Op::regroup, {films}, RegroupAttributes{1});
  TensorInfo& info = b.plan.tensors[static_cast<size_t>(frames)];
  info.scale = b.info(films).scale;
  info.zero_point = b.info(films).zero_point;
  b.output(with_rows(b, frames, kTime));
  expect_as_plain_loops(b.plan);
  expect_rows_refused(
      b.plan,
      {{"another scale", [=](Plan& p) { p.tensors[static_cast<size_t>(frames)].scale *= 2; }, "keep the"},
       {"channels innermost", [=](Plan& p) { p.tensors[static_cast<size_t>(films)].layout = Layout::nhwc; },
        "expected an input of layout plain"}});
}

TEST(Regroup, RunsThatContinueHaveOneRowForEachItem) {
  Builder b(Numbers::f32);
  const int32_t x = with_rows(b, b.op(Op::regroup, {b.input({kBatch, 2, 6, 8})}, RegroupAttributes{1}), 2);
  const AttentionAttributes kept{.heads = 2, .causal = true, .kept = 16};
  b.output(with_rows(b, b.text({.op = Op::attention, .inputs = {x, x, x}, .attributes = kept}), 2));
  EXPECT_SAYS(error_of([&] { b.plan.verify(); }), "expected one row for each item where rows are kept");
}

}  // namespace
}  // namespace ulp::runtime
