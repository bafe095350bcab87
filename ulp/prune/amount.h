// How much to prune.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::prune {

/// The set that a fraction or count is taken of.
enum class AmountOf : uint8_t { remaining, all };

/// A number of units (elements, or the blocks, rows and columns of a pattern).
struct ULP_API Amount {
  std::optional<int64_t> count = std::nullopt;  ///< so many units; nothing: the fraction says
  double fraction = 0.5;                        ///< in [0, 1]
  /// remaining: so many more than now, of those that are kept now: what torch.nn.utils.prune means (twice 0.5
  /// prunes 75 %). all: so many in the end, of all there are; those that are pruned already count.
  AmountOf of = AmountOf::remaining;

  /// That many units.
  static Amount units(int64_t count, AmountOf of = AmountOf::remaining) {
    return {.count = count, .fraction = 0, .of = of};
  }
  /// That share of the units.
  static Amount share(double fraction, AmountOf of = AmountOf::remaining) {
    return {.fraction = fraction, .of = of};
  }

  /// How many units to prune now, where `remaining` of `total` are left: the count, or fraction * n rounded
  /// half to even as Python's round() does, less what is pruned already where it is of all; never below 0.
  /// Throws ulp::Error naming `what` for a negative count, a fraction outside [0, 1] and a count of more than
  /// there are.
  int64_t to_prune(const std::string& what, int64_t total, int64_t remaining) const;

  void visit_fields(FieldVisitor& visit);
  bool operator==(const Amount&) const = default;
};

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::AmountOf> {
  using enum prune::AmountOf;
  static constexpr std::array<Word<prune::AmountOf>, 2> list = {
      {{remaining, "remaining", "of what is kept now"}, {all, "all", "in the end, of everything"}}};
};
