// When masks are drawn anew, and how far they go then.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/prune/amount.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::prune {

/// How the amount of a recipe is reached over the steps of training.
enum class ScheduleKind : uint8_t {
  one_shot,  ///< all of it at step `begin`
  iterative,  ///< `rounds` times the amount, `frequency` steps apart, from `begin` on: of what remains each time
  cubic       ///< every `frequency` steps from `begin` to `end`, fast at first: Zhu and Gupta 2017
};

/// A schedule. Steps count from 0, and step t is before the optimizer's update number t.
struct ULP_API Schedule {
  ScheduleKind kind = ScheduleKind::one_shot;
  int64_t begin = 0;
  int64_t end = 0;          ///< cubic: the last step at which masks may change
  int64_t frequency = 100;  ///< steps between two masks
  int64_t rounds = 1;       ///< iterative
  double initial = 0;       ///< cubic: the share that is pruned at `begin`

  /// Whether masks change at this step: cubic where begin <= step <= end and (step - begin) % frequency = 0
  /// (as tfmot has it).
  bool due(int64_t step) const;
  /// How much is to be pruned at a step that is due, where the recipe says `amount`. cubic, of all:
  /// s_t = s_f + (s_i - s_f) (1 - (t - begin) / (end - begin))^3, s_f being the amount's fraction.
  Amount amount_at(int64_t step, const Amount& amount) const;
  /// The last step at which masks change.
  int64_t last() const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field; cubic wants an amount that is a fraction of all, iterative one of
  /// what remains.
  void validate(const Amount& amount) const;
  bool operator==(const Schedule&) const = default;
};

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::ScheduleKind> {
  using enum prune::ScheduleKind;
  static constexpr std::array<Word<prune::ScheduleKind>, 3> list = {{{one_shot, "one_shot", "at once"},
                                                                     {iterative, "iterative", "in rounds"},
                                                                     {cubic, "cubic", "step by step"}}};
};
