// Scores of a group in relation to each other. Internal to the room.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulp/prune/structured/importance.h"

namespace ulp::prune {

/// Divides by the mean or the largest of the scores; leaves them where that is no positive number.
inline void normalize(std::vector<double>& scores, Normalization how) {
  if (how == Normalization::none || scores.empty()) return;
  double by = 0;
  for (const double score : scores) by = how == Normalization::mean ? by + score : std::max(by, score);
  if (how == Normalization::mean) by /= static_cast<double>(scores.size());
  if (!(by > 0) || !std::isfinite(by)) return;
  for (double& score : scores) score /= by;
}

}  // namespace ulp::prune
