#include "ulp/measure/measure.h"

#include <algorithm>
#include <chrono>

#include "ulp/base/interrupt.h"

namespace ulp::measure {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Mean seconds of a call over one round.
double time_round(const Candidate& candidate, int64_t batch, double round_seconds) {
  int64_t calls = 0;
  const auto start = Clock::now();
  double elapsed = 0;
  do {
    candidate.run(batch);
    ++calls;
    elapsed = seconds_since(start);
  } while (elapsed < round_seconds);
  return elapsed / static_cast<double>(calls);
}

Timing summarize(std::vector<double> rounds) {
  std::sort(rounds.begin(), rounds.end());
  const size_t middle = rounds.size() / 2;
  const double median = rounds.size() % 2 ? rounds[middle] : (rounds[middle - 1] + rounds[middle]) / 2;
  return {median, rounds.front(), rounds.back()};
}

}  // namespace

std::vector<Timing> time_in_turns(const std::vector<Candidate>& candidates, int64_t batch,
                                  const MeasureOptions& options) {
  for (const Candidate& candidate : candidates) {
    for (int i = 0; i < options.warmup_calls; ++i) candidate.run(batch);
  }
  std::vector<std::vector<double>> rounds(candidates.size());
  for (int round = 0; round < std::max(1, options.rounds); ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      check_interrupted();
      rounds[i].push_back(time_round(candidates[i], batch, options.round_seconds));
    }
  }
  std::vector<Timing> result;
  for (auto& values : rounds) result.push_back(summarize(std::move(values)));
  return result;
}

}  // namespace ulp::measure
