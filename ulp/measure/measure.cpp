#include "ulp/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "ulp/base/interrupt.h"
#include "ulp/base/seconds_since.h"

namespace ulp::measure {

namespace {

using Clock = std::chrono::steady_clock;

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

Timing summarize(std::vector<double> rounds, const QuietMeter& meter, int threads) {
  std::sort(rounds.begin(), rounds.end());
  const size_t middle = rounds.size() / 2;
  const double median = rounds.size() % 2 ? rounds[middle] : (rounds[middle - 1] + rounds[middle]) / 2;
  const std::optional<CoresUsed> cores = meter.cores();
  return {median,         rounds.front(), rounds.back(),
          meter.others(), cores,          quiet_seconds(median, cores, threads)};
}

/// All rounds of the candidates with these indices, in turn. `done` counts rounds for the progress.
std::vector<Timing> attempt(const std::vector<Candidate>& candidates, const std::vector<size_t>& which,
                            int64_t batch, const MeasureOptions& options, int64_t& done) {
  const int turns = std::max(1, options.rounds);
  const int64_t total = done + turns * static_cast<int64_t>(which.size());
  std::vector<std::vector<double>> rounds(which.size());
  std::vector<QuietMeter> meters(which.size(), QuietMeter(options.probe));
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < which.size(); ++i) {
      check_interrupted();
      if (options.progress) options.progress(done, total);
      meters[i].begin();
      rounds[i].push_back(time_round(candidates[which[i]], batch, options.round_seconds));
      meters[i].end();
      ++done;
    }
  }
  std::vector<Timing> result;
  for (size_t i = 0; i < which.size(); ++i)
    result.push_back(summarize(std::move(rounds[i]), meters[i], candidates[which[i]].threads));
  return result;
}

}  // namespace

std::vector<Timing> time_in_turns(const std::vector<Candidate>& candidates, int64_t batch,
                                  const MeasureOptions& options) {
  for (const Candidate& candidate : candidates) {
    for (int i = 0; i < options.warmup_calls; ++i) candidate.run(batch);
  }
  std::vector<size_t> all(candidates.size());
  std::iota(all.begin(), all.end(), size_t{0});
  int64_t done = 0;
  std::vector<Timing> best = attempt(candidates, all, batch, options, done);
  for (int repeat = 1; repeat < options.attempts; ++repeat) {
    std::vector<size_t> disturbed;
    std::copy_if(all.begin(), all.end(), std::back_inserter(disturbed),
                 [&](size_t i) { return is_disturbed(best[i].others); });
    if (disturbed.empty()) break;
    const std::vector<Timing> again = attempt(candidates, disturbed, batch, options, done);
    for (size_t i = 0; i < disturbed.size(); ++i) {
      Timing& kept = best[disturbed[i]];
      if (again[i].others.value_or(0) < *kept.others) kept = again[i];
    }
  }
  return best;
}

}  // namespace ulp::measure
