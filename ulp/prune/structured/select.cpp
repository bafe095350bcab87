#include "ulp/prune/structured/select.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "ulp/base/error.h"
#include "ulp/prune/structured/unit_width.h"

namespace ulp::prune {

namespace {

struct GroupCandidate {
  double score;
  size_t group;
  int64_t unit;
  auto operator<=>(const GroupCandidate&) const = default;
};

/// Half to even, as PyTorch counts.
int64_t rounded(double count) {
  return static_cast<int64_t>(std::nearbyint(count));
}

/// How many units may go at most if `removed` should: what is left is a multiple of round_to channels.
int64_t suited(const Group& group, int64_t removed, int64_t round_to) {
  const int64_t width = unit_width(group);
  for (int64_t kept = group.units - removed; kept < group.units; ++kept) {
    if (kept * width % round_to == 0) return group.units - kept;
  }
  return 0;
}

/// suited(), then what options.widen says.
int64_t suited(const Groups& groups, size_t g, int64_t removed, const UnitSelection& options) {
  const Group& group = groups.groups[g];
  removed = suited(group, removed, options.round_to);
  if (!options.widen) return removed;
  const int64_t kept = group.units - removed, wider = options.widen(g, kept);
  if (wider < kept || wider > group.units)
    fail("prune.select", "expected widen to keep from ", kept, " to ", group.units, " units of '",
         group.name(), "', got ", wider);
  return group.units - wider;
}

/// Numbers of the groups whose units are compared with each other.
std::vector<std::vector<size_t>> compared(const Groups& groups, UnitScope scope) {
  std::vector<std::vector<size_t>> found;
  std::map<std::string, size_t> index;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const std::string key = scope == UnitScope::local        ? std::to_string(g)
                            : scope == UnitScope::isomorphic ? groups.groups[g].pattern
                                                             : "";
    const auto [at, fresh] = index.emplace(key, found.size());
    if (fresh) found.emplace_back();
    found[at->second].push_back(g);
  }
  return found;
}

/// The finite ones, least important first.
std::vector<GroupCandidate> candidates_of(const Groups& groups, const Importance& importance,
                                          const std::vector<size_t>& among) {
  std::vector<GroupCandidate> found;
  for (const size_t g : among) {
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
  if (!options.full_widths.empty() && options.full_widths.size() != groups.groups.size())
    fail("prune.select", "expected full_widths of ", groups.groups.size(), " groups, got ",
         options.full_widths.size());
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
  const auto most = [&](size_t g) {
    const int64_t units = groups.groups[g].units;
    if (options.scope == UnitScope::local) return units - 1;
    const int64_t width = unit_width(groups.groups[g]), now = units * width,
                  full = options.full_widths.empty() ? now : options.full_widths[g];
    const auto allowed = static_cast<int64_t>(std::floor(options.cap * static_cast<double>(full) + 1e-9));
    return std::clamp<int64_t>((allowed - (full - now)) / width, 0, units - 1);
  };
  const auto take = [&](const std::vector<GroupCandidate>& candidates, int64_t count) {
    for (const GroupCandidate& candidate : candidates) {
      std::vector<int64_t>& units = result.units[candidate.group];
      if (count == 0 || static_cast<int64_t>(units.size()) >= most(candidate.group)) continue;
      units.push_back(candidate.unit);
      --count;
    }
  };
  for (const std::vector<size_t>& among : compared(groups, options.scope)) {
    int64_t total = 0;
    for (const size_t g : among) total += groups.groups[g].units;
    take(candidates_of(groups, importance, among), rounded(options.amount * static_cast<double>(total)));
  }
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    std::vector<int64_t>& units = result.units[g];  // the least important first: the last ones come back
    units.resize(static_cast<size_t>(suited(groups, g, static_cast<int64_t>(units.size()), options)));
    std::ranges::sort(units);
  }
  return result;
}

}  // namespace ulp::prune
