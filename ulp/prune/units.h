// A layer's scores as those of the units that a pattern prunes together. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/prune/select.h"

namespace ulp::prune {

/// The function or class that errors name.
inline constexpr const char* kSelectWhere = "prune.select";

/// A weight as rows, columns and kernel positions; one without dimensions to spare has one column or row.
struct WeightShape {
  int64_t rows = 1, columns = 1, positions = 1;
  static WeightShape of(at::IntArrayRef sizes);
};

/// The units of one layer.
struct Units {
  std::string name;
  std::vector<int64_t> of_element;      ///< the unit of each element in row-major order
  std::vector<double> score;            ///< of each unit
  std::vector<char> alive;              ///< of each unit: one of its elements is kept
  int64_t remaining = 0;                ///< units that are alive
  std::vector<char> alive_before = {};  ///< by LayerScores::before
  int64_t before = 0;                   ///< units that were alive then

  int64_t total() const { return static_cast<int64_t>(score.size()); }
};

/// Throws ulp::Error as select() says.
Units units_of(const LayerScores& layer, const Pattern& pattern);

/// The units of n_m's groups, with the scores of single elements: element i is unit i, and group[i] its group.
struct UnitGroups {
  Units elements;
  std::vector<int64_t> of_element;
  int64_t count = 0;
};
UnitGroups groups_of(const LayerScores& layer, const Pattern& pattern);

}  // namespace ulp::prune
