// How a network is made narrower, as a recipe: a plain options struct with defaults, validation and versioned
// JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/importance.h"
#include "ulp/prune/structured/latency_target.h"
#include "ulp/prune/structured/regularize.h"
#include "ulp/prune/structured/remove_units.h"
#include "ulp/prune/structured/select.h"
#include "ulp/prune/structured/width_table.h"

namespace ulp::prune {

/// Which channels, heads and neurons go, by which scores, and how many.
struct ULP_API ChannelPruningRecipe {
  static constexpr const char* kType = "ulp.prune.ChannelPruningRecipe";

  Criterion criterion = Criterion::group;
  int64_t permutations = 5;                           ///< of Criterion::shapley
  Normalization normalization = Normalization::mean;  ///< of all but shapley, whose values are comparable
  UnitScope scope = UnitScope::global;
  double cap = 0.9;              ///< global: the largest share of a group that goes
  int64_t round_to = 1;          ///< widths are multiples of it
  bool measured_widths = false;  ///< widths are rounded to those that cost no more (ImportanceInputs::widths)
  Measure measure = Measure::macs;
  double share = 0.5;  ///< what is left of the measure
  int64_t steps =
      1;  ///< in which the share is reached: the same factor each time, importance anew, training in between
  /// Before the first cut the network is trained with this penalty on its units (RegularizeOptions); lambda
  /// 0: it is not.
  Penalty regularizer = Penalty::dependency;
  double lambda = 0;
  double growth = 1e-5;  ///< of Penalty::growing
  bool inexact = false;  ///< through layer norm and its like, too (GroupOptions)
  uint64_t seed = 0;     ///< of random
  /// Modules whose rows stay ('*' is any run of characters).
  std::vector<std::string> skip = {};

  /// What is left of the measure after step i of `steps`, of the network before the first.
  double share_after(int64_t step) const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.prune.ChannelPruningRecipe", "version": 1, ...}; fields that are missing keep their
  /// defaults. Throws FileError for other text, an unknown field, a value of another kind, or a newer
  /// version, and ulp::Error as validate() does.
  std::string to_json() const;
  static ChannelPruningRecipe from_json(const std::string& text);
  bool operator==(const ChannelPruningRecipe&) const = default;
};

/// What a recipe needs beside the weights.
struct ImportanceInputs {
  const SquaredGradients* squared_gradients = nullptr;  ///< Criterion::hessian
  const WidthTable* widths = nullptr;                   ///< ChannelPruningRecipe::measured_widths
  MeasureSeconds seconds = {};                          ///< Measure::latency
  /// Channels of groups, by their names, of the network before earlier cuts: what the cap is taken of.
  std::map<std::string, int64_t> full_widths = {};
  /// Criterion::apoz, activation, rank and shapley: how the units are scored.
  std::function<Importance(const graph::GraphModule& module, const Groups& groups)> importance = {};
};

/// A network cut by a recipe.
struct PrunedModel {
  std::shared_ptr<graph::GraphModule> module;
  Kept kept;
  Groups groups;  ///< of the network before
  std::vector<Obstacle> whole =
      {};  ///< groups of which nothing may go: named in skip, or the criterion says nothing of them
  ModelSize rounded;  ///< what rounding of widths kept more, of the network after
  std::optional<LatencySelection> latency = std::nullopt;  ///< Measure::latency: what was measured
};

/// ImportanceInputs::full_widths of a network before its first cut.
ULP_API std::map<std::string, int64_t> widths_of(const Groups& groups);

/// Cuts to `share` of the module's own measure, with the recipe's criterion; the module stays as it is.
/// Criterion::taylor wants gradients. Throws ulp::Error as groups(), importance(), select_target(),
/// select_latency() and remove_units() do, for an input that is needed and not there, and for a pattern of
/// `skip` that matches no layer.
ULP_API PrunedModel prune_by_recipe(const graph::GraphModule& module, const ChannelPruningRecipe& recipe,
                                    double share, const ImportanceInputs& inputs = {});

}  // namespace ulp::prune
