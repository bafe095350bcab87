// The recipe of pruning single weights: a plain options struct with defaults, validation and versioned JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph.h"
#include "ulp/prune/amount.h"
#include "ulp/prune/schedule.h"
#include "ulp/prune/scores/score.h"
#include "ulp/prune/select.h"

namespace ulp::prune {

/// Which weights of a model are pruned, by which scores, and when.
struct ULP_API Recipe {
  static constexpr const char* kType = "ulp.prune.Recipe";

  Score score = Score::magnitude;
  Pattern pattern = {};
  Scope scope = Scope::global;              ///< sparsegpt prunes each layer by itself whatever this is
  Amount amount = {};                       ///< of each layer, of all together, or of each row
  double floor = 0;                         ///< global: at least this share of each layer is kept
  std::vector<NamedAmount> overrides = {};  ///< parameters that are pruned by themselves
  /// Parameters that may be pruned, by any of their names or the paths of their modules ('*' is any run of
  /// characters); of those that match, the ones with two dimensions or more that nodes read. Empty: all such.
  std::vector<std::string> parameters = {};
  std::vector<std::string> skip = {};  ///< of those, the ones that stay dense
  Schedule schedule = {};
  /// Rounds in which one amount is reached, scores being computed anew in each; the density falls evenly in
  /// its logarithm. 0: as the score has it: 100 for synflow (as its authors), else 1.
  int64_t rounds = 0;
  int64_t seed = 0;           ///< of random
  double movement_lr = 0.01;  ///< movement: of the scores
  double threshold = 0.5;     ///< soft_movement: what sigmoid(S) must exceed
  double penalty = 0;         ///< soft_movement: times the mean of sigmoid(S)

  /// The rounds that are used.
  int64_t used_rounds() const;
  /// The parameters of the graph that the recipe prunes, in its order. Throws ulp::Error for a pattern that
  /// matches none, and where nothing is left.
  std::vector<std::string> parameters_in(const graph::Graph& graph) const;
  /// How they are chosen at once, whatever the schedule says.
  Selection selection() const;
  /// How they are chosen at a step that is due by the schedule, overrides included.
  Selection selection_at(int64_t step) const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.prune.Recipe", "version": 1, ...}; fields that are missing keep their defaults. Throws
  /// FileError for other text, an unknown field, a value of another kind, or a newer version, and ulp::Error
  /// as validate() does.
  std::string to_json() const;
  static Recipe from_json(const std::string& text);
  bool operator==(const Recipe&) const = default;
};

}  // namespace ulp::prune
