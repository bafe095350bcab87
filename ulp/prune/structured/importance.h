// How much each channel, head or neuron matters: the scores by which units are removed.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/squared_gradients.h"

namespace ulp::prune {

/// A measure of a unit u. w are weights, "rows" the slices that make the unit, "all" those that read it and the scales of norms, too.
enum class Criterion : uint8_t {
  l1,     ///< sum |w| over the rows (Li et al. 2017, "Pruning Filters for Efficient ConvNets")
  l2,     ///< sqrt(sum w^2) over the rows
  group,  ///< mean over the members of sum w^2, over all (Fang et al. 2023, "DepGraph")
  scale,  ///< mean |gamma| of the norms (Liu et al. 2017, "Network Slimming"); infinite in groups without one
  taylor,  ///< sum |w g| over all, with the gradients that are there (Molchanov et al. 2019)
  hessian,  ///< sum w^2 E[g^2] over all: the diagonal of the Hessian by squared gradients (squared_gradients.h)
  fpgm,  ///< sum over the units v of |rows(u) - rows(v)|_2: those next to the geometric median are lowest (He et al. 2019)
  lamp,  ///< n(u) / sum of n(v) over the v with n(v) >= n(u), where n is `group` (Lee et al. 2021)
  random,      ///< uniform in [0, 1)
  apoz,        ///< by ActivationScore::apoz
  activation,  ///< by ActivationScore::mean
  rank,        ///< by ActivationScore::rank
  shapley      ///< by ShapleyValues::values
};
/// Whether the criterion needs gradients, activations or losses.
ULP_API bool needs_data(Criterion criterion);

/// What the scores of a group are divided by, so that groups can be compared.
enum class Normalization : uint8_t {
  none,
  mean,  ///< the group's mean
  max    ///< the group's largest score
};

/// How units are scored.
struct ImportanceOptions {
  Criterion criterion = Criterion::group;
  Normalization normalization = Normalization::mean;
  uint64_t seed = 0;                                    ///< of Criterion::random
  const SquaredGradients* squared_gradients = nullptr;  ///< of Criterion::hessian, of this module
};

/// Of each group, of each unit: the higher, the more it matters.
using Importance = std::vector<std::vector<double>>;

/// Scores every unit. `groups` are those of the module's graph. Throws ulp::Error for a
/// tensor that the graph has not, for criteria of activations and losses (activation_importance.h, shapley.h), for Criterion::taylor where a parameter that needs one has no gradient, and for
/// Criterion::hessian one without squared gradients.
ULP_API Importance importance(const graph::GraphModule& module, const Groups& groups,
                              const ImportanceOptions& options = {});

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::Criterion> {
  using enum ulp::prune::Criterion;
  static constexpr std::array<Word<ulp::prune::Criterion>, 13> list{
      {{l1, "l1", "sum of |w| over the filters"},
       {l2, "l2", "norm of the filters"},
       {group, "group", "norm over all that is cut together"},
       {scale, "scale", "|gamma| of norms"},
       {taylor, "taylor", "|w g|"},
       {hessian, "hessian", "w^2 E[g^2]"},
       {fpgm, "fpgm", "distance from the others"},
       {lamp, "lamp", "share of the larger ones"},
       {random, "random"},
       {apoz, "apoz", "share of activations that are not zero"},
       {activation, "activation", "mean |activation|"},
       {rank, "rank", "rank of the maps (HRank)"},
       {shapley, "shapley", "what the loss grows by without it"}}};
};

template <>
struct ulp::EnumNames<ulp::prune::Normalization> {
  using enum ulp::prune::Normalization;
  static constexpr std::array<Word<ulp::prune::Normalization>, 3> list{
      {{none, "none"}, {mean, "mean"}, {max, "max"}}};
};
