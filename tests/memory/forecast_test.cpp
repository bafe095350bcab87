// Recordings made by hand, extended to other sizes.
#include "ulp/memory/predict/forecast.h"

#include <gtest/gtest.h>

#include "error_of.h"

namespace {

using namespace ulp::memory;

Life life(int64_t bytes, Moment begin, std::optional<Moment> end, Category category = Category::workspace) {
  return {.bytes = bytes, .begin = begin, .end = end, .category = category};
}

/// Two ops. The first keeps 10 * batch bytes until the second is over and works with `scratch` of them; the
/// second works with the square of the length times the batch.
Recording program(RunSize size, const std::vector<int64_t>& scratch) {
  Recording recording{
      .places = {{Phase::forward, "one", "a"}, {Phase::backward, "two", "b"}}, .runs = {0, 1}, .lives = {}};
  int32_t i = 0;
  for (const int64_t bytes : scratch) {
    recording.lives.push_back(life(bytes, {0, i}, Moment{0, i + 1}));
    ++i;
  }
  recording.lives.push_back(life(10 * size.batch + 3, {0, i}, Moment{1, 1}, Category::activations));
  recording.lives.push_back(life(size.batch * size.length * size.length, {1, 0}, Moment{1, 1}));
  return recording;
}

TEST(Forecast, SizesFollowTheBatchAndTheSquareOfTheLength) {
  const RunGrid grid{.batches = {2, 3}, .lengths = {4, 6, 9}};
  std::vector<Recording> recordings;
  for (const RunSize size : grid.points()) recordings.push_back(program(size, {7}));
  const Forecast forecast(grid, std::move(recordings));
  for (const RunSize size : {RunSize{2, 4}, {100, 512}, {1, 1}, {7, 33}}) {
    EXPECT_EQ(forecast.peak_bytes(size), 10 * size.batch + 3 + size.batch * size.length * size.length);
  }
  const Prediction prediction = forecast.at({100, 512});
  EXPECT_EQ(describe(prediction.cause), "backward, two at b");
  EXPECT_EQ(prediction.asked_bytes, 100 * 512 * 512);
  EXPECT_EQ(prediction.at(Category::activations), 1003);
  EXPECT_EQ(prediction.at(Category::workspace), 100 * 512 * 512);
}

TEST(Forecast, AnOpWithOtherWorkspaceCountsWithItsMost) {
  const RunGrid grid{.batches = {1, 2}, .lengths = {0}};
  // One piece of 50 for one sample; for two samples pieces of 50, one after the other, beside one of 100.
  Recording one = program({1, 0}, {50}), two = program({2, 0}, {});
  two.lives.clear();
  two.lives.push_back(life(100, {0, 0}, Moment{0, 3}));
  two.lives.push_back(life(50, {0, 1}, Moment{0, 2}));
  two.lives.push_back(life(50, {0, 2}, Moment{0, 3}));
  two.lives.push_back(life(23, {0, 3}, Moment{1, 1}, Category::activations));
  two.lives.push_back(life(0, {1, 0}, Moment{1, 1}));
  const Forecast forecast(grid, {one, two});
  EXPECT_EQ(forecast.peak_bytes({1, 0}), 50);
  EXPECT_EQ(forecast.peak_bytes({2, 0}), 150);
  EXPECT_EQ(forecast.peak_bytes({3, 0}), 250);
}

TEST(Forecast, StoragesLiveAsLongAsTheLongest) {
  const RunGrid grid{.batches = {1, 2}, .lengths = {0}};
  Recording one = program({1, 10}, {}), two = program({2, 10}, {});
  one.lives[0].end = Moment{1, 0};  // gone before the second op works
  EXPECT_EQ(one.peak_bytes(), 100);
  const Forecast forecast(grid, {one, two});
  EXPECT_EQ(forecast.peak_bytes({1, 0}), 113);
}

TEST(Forecast, OtherProgramsAreRefusedByName) {
  const RunGrid grid{.batches = {1, 2}, .lengths = {0}};
  const Recording one = program({1, 0}, {});
  Recording other = program({2, 0}, {});
  other.places[1].op = "three";
  EXPECT_ERROR(Forecast(grid, {one, other}), "got backward, two at b and backward, three at b");
  Recording more = program({2, 0}, {});
  more.lives.push_back(life(5, {1, 1}, std::nullopt));
  EXPECT_ERROR(Forecast(grid, {one, more}), "got 0 and 1 of backward, two at b");
  EXPECT_ERROR(Forecast(grid, {one}), "expected 2 recordings, got 1");
}

TEST(Forecast, TheTimelineHasThePeakAndEveryPhase) {
  Recording recording{
      .places = {{Phase::forward, "op", ""}, {Phase::backward, "op", ""}}, .runs = {}, .lives = {}};
  for (int32_t run = 0; run < 1000; ++run) {
    recording.runs.push_back(run < 500 ? 0 : 1);
    const auto end = run == 333 ? std::optional(Moment{334, 0}) : std::nullopt;
    recording.lives.push_back(life(run == 333 ? 1'000'000 : 1, {run, 0}, end, Category::activations));
  }
  const Prediction prediction = summarize(recording, {}, /*points=*/20);
  EXPECT_EQ(prediction.peak_bytes, 1'000'333);
  EXPECT_EQ(prediction.at_peak.time, 333);
  EXPECT_LE(prediction.timeline.size(), 21u);
  EXPECT_EQ(std::ranges::count_if(prediction.timeline, [](const auto& p) { return p.total() == 1'000'333; }),
            1);
  EXPECT_EQ(prediction.timeline.back().total(), 999);
  EXPECT_EQ(prediction.timeline.back().phase, Phase::backward);
}

}  // namespace
