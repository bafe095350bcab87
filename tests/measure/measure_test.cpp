#include "ulp/measure/measure.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/measure/memory_meter.h"

namespace {

using namespace ulp::measure;

TEST(Measure, RunsEveryCandidateInTurnAtTheGivenBatch) {
  std::string order;
  int64_t seen = 0;
  const std::vector<Candidate> candidates = {{"a",
                                              [&](int64_t batch) {
                                                order += 'a';
                                                seen = batch;
                                              }},
                                             {"b", [&](int64_t) { order += 'b'; }}};
  const auto timings = time_in_turns(
      candidates, 64,
      {.rounds = 2, .round_seconds = 0, .warmup_calls = 1, .probe = [] { return ulp::CpuUsage{}; }});
  EXPECT_EQ(order, "ababab");
  EXPECT_EQ(seen, 64);
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_LE(timings[0].minimum, timings[0].median);
  EXPECT_LE(timings[0].median, timings[0].maximum);
  EXPECT_EQ(timings[0].others, std::nullopt);
}

TEST(MemoryMeter, CountsLiveAndPeakTensorBytes) {
  MemoryMeter meter;
  {
    const at::Tensor kept = torch::empty({1 << 20}, torch::kFloat);
    { const at::Tensor more = torch::empty({1 << 20}, torch::kFloat); }
    EXPECT_EQ(meter.live_bytes(), 4 << 20);
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 8 << 20);
}

TEST(MemoryMeter, CountsWhatBackwardAllocates) {
  MemoryMeter meter;
  const at::Tensor weight = torch::zeros({256, 256}, torch::requires_grad());
  weight.sum().backward();
  EXPECT_GE(meter.live_bytes(), 2 * 256 * 256 * 4);  // the weight and its gradient
}

}  // namespace
