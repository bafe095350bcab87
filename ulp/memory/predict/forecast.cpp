#include "ulp/memory/predict/forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulp/base/error.h"

namespace ulp::memory {

namespace {

constexpr const char* kForecastWhere = "memory.Forecast";

/// The shares of the values at `points` in the value of their polynomial at `x` (Lagrange).
std::vector<long double> shares_at(const std::vector<int64_t>& points, int64_t x) {
  std::vector<long double> shares(points.size(), 1);
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = 0; j < points.size(); ++j) {
      if (i == j) continue;
      shares[i] *= static_cast<long double>(x - points[j]) / static_cast<long double>(points[i] - points[j]);
    }
  }
  return shares;
}

/// Upwards, but for what rounding in the shares may have added.
int64_t round_up(long double value) {
  const long double nearest = std::round(value);
  const long double slack = 1e-9L * std::abs(value) + 1e-6L;
  const long double whole = std::abs(value - nearest) <= slack ? nearest : std::ceil(value);
  return whole < 0 ? 0 : static_cast<int64_t>(whole);
}

/// The storages of each run, by index.
std::vector<std::vector<size_t>> lives_of_runs(const Recording& recording) {
  std::vector<std::vector<size_t>> lives(recording.runs.size());
  for (size_t i = 0; i < recording.lives.size(); ++i)
    lives[static_cast<size_t>(recording.lives[i].begin.run)].push_back(i);
  return lives;
}

/// Whether the storages of a run begin and end in the same order.
bool same_order(const Recording& one, const std::vector<size_t>& of_one, const Recording& other,
                const std::vector<size_t>& of_other) {
  if (of_one.size() != of_other.size()) return false;
  for (size_t i = 0; i < of_one.size(); ++i) {
    const Life &a = one.lives[of_one[i]], &b = other.lives[of_other[i]];
    if (a.within_run() != b.within_run() || (a.within_run() && a.end != b.end)) return false;
  }
  return true;
}

size_t count_kept(const Recording& recording, const std::vector<size_t>& lives) {
  return static_cast<size_t>(
      std::ranges::count_if(lives, [&](size_t i) { return !recording.lives[i].within_run(); }));
}

/// The most that lived in each run beyond what lived when it began.
std::vector<int64_t> peaks_of_runs(const Recording& recording) {
  std::vector<int64_t> peaks(recording.runs.size(), 0), change(recording.runs.size(), 0);
  for (const Life& life : recording.lives) {
    change[static_cast<size_t>(life.begin.run)] += life.bytes;
    if (life.end) change[static_cast<size_t>(life.end->run)] -= life.bytes;
  }
  std::vector<int64_t> at_begin(recording.runs.size(), 0);
  std::exclusive_scan(change.begin(), change.end(), at_begin.begin(), int64_t{0});
  int64_t live = 0;
  replay(recording, [&](const Life& life, bool begins) {
    live += begins ? life.bytes : -life.bytes;
    if (!begins) return;
    const auto run = static_cast<size_t>(life.begin.run);
    peaks[run] = std::max(peaks[run], live - at_begin[run]);
  });
  return peaks;
}

/// The same with one storage in the place of a run's workspace, for the runs marked.
Recording collapsed(const Recording& recording, const std::vector<bool>& marked) {
  const std::vector<int64_t> peaks = peaks_of_runs(recording);
  const auto is_marked = [&](const Moment& moment) { return marked[static_cast<size_t>(moment.run)]; };
  Recording result{.places = recording.places, .runs = recording.runs, .lives = {}};
  const auto lives = lives_of_runs(recording);
  for (size_t run = 0; run < lives.size(); ++run) {
    const auto number = static_cast<int32_t>(run);
    if (marked[run])
      result.lives.push_back({.bytes = peaks[run], .begin = {number, 0}, .end = Moment{number, 1}});
    int32_t kept = 0;
    for (const size_t i : lives[run]) {
      Life life = recording.lives[i];
      if (marked[run] && life.within_run()) continue;
      if (marked[run]) life.begin.allocations = ++kept;
      if (life.end && is_marked(*life.end)) life.end->allocations = 1;
      result.lives.push_back(life);
    }
  }
  return result;
}

template <typename... Parts>
[[noreturn]] void differ(const Parts&... parts) {
  throw OtherProgram(message(kForecastWhere, parts...));
}

/// Throws where they are not of one program; gives the runs that must be collapsed.
std::vector<bool> unlike_runs(const std::vector<Recording>& recordings) {
  const Recording& one = recordings[0];
  const auto lives = lives_of_runs(one);
  std::vector<bool> unlike(one.runs.size(), false);
  for (const Recording& other : recordings) {
    const auto others = lives_of_runs(other);
    for (size_t run = 0; run < std::min(lives.size(), others.size()); ++run) {
      const auto number = static_cast<int32_t>(run);
      const CallSite &place = one.call_site_of(number), &its_place = other.call_site_of(number);
      if (place.phase != its_place.phase || place.op != its_place.op) {
        differ("expected the same ops at every size, got ", describe(one.call_site_of(number)), " and ",
               describe(other.call_site_of(number)));
      }
      const size_t kept = count_kept(one, lives[run]), kept_by_other = count_kept(other, others[run]);
      if (kept != kept_by_other) {
        differ("expected ops that leave the same storages at every size, got ", kept, " and ", kept_by_other,
               " of ", describe(one.call_site_of(number)));
      }
      if (!same_order(one, lives[run], other, others[run])) unlike[run] = true;
    }
    if (lives.size() != others.size())
      differ("expected the same ops at every size, got ", lives.size(), " and ", others.size());
  }
  return unlike;
}

}  // namespace

std::vector<RunSize> RunGrid::points() const {
  std::vector<RunSize> sizes;
  for (const int64_t batch : batches) {
    for (const int64_t length : lengths) sizes.push_back({batch, length});
  }
  return sizes;
}

Forecast::Forecast(RunGrid grid, std::vector<Recording> recordings)
    : grid_(std::move(grid)), recordings_(std::move(recordings)) {
  if (recordings_.empty() || recordings_.size() != grid_.points().size())
    fail(kForecastWhere, "expected ", grid_.points().size(), " recordings, got ", recordings_.size());
  const std::vector<bool> unlike = unlike_runs(recordings_);
  for (Recording& recording : recordings_) recording = collapsed(recording, unlike);
  for (size_t i = 0; i < recordings_[0].lives.size(); ++i) {  // the longest of its lives
    std::optional<Moment>& end = recordings_[0].lives[i].end;
    for (const Recording& other : recordings_) {
      const std::optional<Moment>& its_end = other.lives[i].end;
      if (end && (!its_end || *its_end > *end)) end = its_end;
    }
  }
}

Recording Forecast::recording(RunSize size) const {
  const std::vector<long double> by_batch = shares_at(grid_.batches, size.batch);
  const std::vector<long double> by_length = shares_at(grid_.lengths, size.length);
  std::vector<long double> shares;
  for (const long double one : by_batch) {
    for (const long double other : by_length) shares.push_back(one * other);
  }
  Recording result = recordings_[0];
  for (size_t i = 0; i < result.lives.size(); ++i) {
    long double bytes = 0;
    for (size_t j = 0; j < shares.size(); ++j)
      bytes += shares[j] * static_cast<long double>(recordings_[j].lives[i].bytes);
    result.lives[i].bytes = round_up(bytes);
  }
  return result;
}

}  // namespace ulp::memory
