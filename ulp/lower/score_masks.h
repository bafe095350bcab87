// What masks of attention scores hide, however they are put together: what comes later, and keys of a sample.
#pragma once

#include <optional>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/lower/fixed_masks.h"

namespace ulp::lowering {

/// Keys of a sample that are hidden from all of its queries: [N, 1, keys] or [N, 1, 1, keys].
struct HiddenKeys {
  enum class Where : uint8_t { is_true, is_false, is_zero };
  graph::Value* value = nullptr;
  Where where = Where::is_true;
  bool operator==(const HiddenKeys&) const = default;
};

/// Scores that a mask picks out: those of later keys, those of hidden keys, or both.
struct PickedScores {
  int64_t later = -1;  ///< the size of the square of queries and keys; -1: not those of later keys
  std::vector<HiddenKeys> keys;
  int64_t window = 0;  ///< those of keys before a window, too, as Triangle has it
};

/// A number that is added to scores.
struct AddedNumber {
  PickedScores where;
  double number = 0;
};

/// What is added to scores.
struct AddedMask {
  std::vector<AddedNumber> numbers;
  graph::Value* values = nullptr;  ///< [N, 1, 1, keys], computed; null for none
};

/// Reads masks that are made of triangles and of rows of keys by and, or, not, products and views. `rank`: of
/// the scores that a mask is for.
class ScoreMasks {
 public:
  explicit ScoreMasks(FixedMasks& fixed) : fixed_(fixed) {}

  /// The scores where a mask of truth values is true, or false.
  std::optional<PickedScores> where_true(const graph::Argument& mask, int64_t rank);
  std::optional<PickedScores> where_false(const graph::Argument& mask, int64_t rank);
  /// Numbers that are 0 but at some scores, times `sign`.
  std::optional<AddedMask> added(const graph::Argument& mask, double sign, int64_t rank);

 private:
  std::optional<PickedScores> where_zero(const graph::Argument& mask, int64_t rank);
  bool is_zero_or_one(const graph::Argument& mask);
  std::optional<PickedScores> picked_row(const graph::Argument& mask, HiddenKeys::Where where,
                                         int64_t rank) const;
  template <typename Part>
  std::optional<PickedScores> both(const graph::Node& node, Part part, int64_t rank);
  std::optional<AddedMask> weighted(const graph::Node& node, double sign, int64_t rank);

  FixedMasks& fixed_;
};

}  // namespace ulp::lowering
