#include "ulp/prune/structured/select.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"

namespace ulp::prune {

namespace {

struct Candidate {
  double score;
  size_t group;
  int64_t unit;
  auto operator<=>(const Candidate&) const = default;
};

/// Half to even, as PyTorch counts.
int64_t rounded(double count) {
  return static_cast<int64_t>(std::nearbyint(count));
}

/// Channels of a unit in the narrowest place that it is cut.
int64_t width_of(const Group& group) {
  int64_t width = 0;
  for (const Member& member : group.members) {
    const auto count = static_cast<int64_t>(member.indices.at(0).size());
    width = width == 0 ? count : std::min(width, count);
  }
  return std::max<int64_t>(width, 1);
}

/// How many units may go at most if `removed` should: what is left is a multiple of round_to channels.
int64_t suited(const Group& group, int64_t removed, int64_t round_to) {
  const int64_t width = width_of(group);
  for (int64_t kept = group.units - removed; kept < group.units; ++kept) {
    if (kept * width % round_to == 0) return group.units - kept;
  }
  return 0;
}

/// The finite ones, least important first.
std::vector<Candidate> candidates_of(const Groups& groups, const Importance& importance, size_t first,
                                     size_t last) {
  std::vector<Candidate> found;
  for (size_t g = first; g < last; ++g) {
    for (int64_t unit = 0; unit < groups.groups[g].units; ++unit) {
      const double score = importance[g][static_cast<size_t>(unit)];
      if (std::isfinite(score)) found.push_back({score, g, unit});
    }
  }
  std::ranges::sort(found);
  return found;
}

void check(const Groups& groups, const Importance& importance, const UnitSelection& options) {
  options.validate();
  if (importance.size() != groups.groups.size())
    fail("prune.select", "expected the importance of ", groups.groups.size(), " groups, got ",
         importance.size());
  for (size_t g = 0; g < importance.size(); ++g) {
    if (static_cast<int64_t>(importance[g].size()) != groups.groups[g].units)
      fail("prune.select", "expected the importance of ", groups.groups[g].units, " units of '",
           groups.groups[g].name(), "', got ", importance[g].size());
    for (const double score : importance[g]) {
      if (std::isnan(score))
        fail("prune.select", "expected numbers for '", groups.groups[g].name(), "', got NaN");
    }
  }
}

}  // namespace

void UnitSelection::validate() const {
  const auto share = [](const char* name, double value) {
    if (!(value >= 0 && value <= 1)) fail("prune.select", "expected ", name, " in [0, 1], got ", value);
  };
  share("amount", amount);
  share("cap", cap);
  if (round_to < 1) fail("prune.select", "expected round_to of at least 1, got ", round_to);
}

Removals select_units(const Groups& groups, const Importance& importance, const UnitSelection& options) {
  check(groups, importance, options);
  Removals result;
  result.units.resize(groups.groups.size());
  const auto take = [&](const std::vector<Candidate>& candidates, int64_t count, const auto& most) {
    for (const Candidate& candidate : candidates) {
      std::vector<int64_t>& units = result.units[candidate.group];
      if (count == 0 || static_cast<int64_t>(units.size()) >= most(candidate.group)) continue;
      units.push_back(candidate.unit);
      --count;
    }
  };
  if (options.scope == UnitScope::global) {
    int64_t total = 0;
    for (const Group& group : groups.groups) total += group.units;
    take(candidates_of(groups, importance, 0, groups.groups.size()),
         rounded(options.amount * static_cast<double>(total)), [&](size_t g) {
           const int64_t units = groups.groups[g].units;
           return std::min(units - 1,
                           static_cast<int64_t>(std::floor(options.cap * static_cast<double>(units) + 1e-9)));
         });
  } else {
    for (size_t g = 0; g < groups.groups.size(); ++g) {
      const int64_t units = groups.groups[g].units;
      take(candidates_of(groups, importance, g, g + 1), rounded(options.amount * static_cast<double>(units)),
           [&](size_t) { return units - 1; });
    }
  }
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    std::vector<int64_t>& units = result.units[g];  // the least important first: the last ones come back
    units.resize(
        static_cast<size_t>(suited(groups.groups[g], static_cast<int64_t>(units.size()), options.round_to)));
    std::ranges::sort(units);
  }
  return result;
}

}  // namespace ulp::prune
