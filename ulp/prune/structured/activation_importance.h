// How much each unit matters by what it does on data.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/importance.h"

namespace ulp::prune {

/// A measure of what layers behind a unit read of it.
enum class ActivationScore : uint8_t {
  apoz,  ///< share of numbers that are not zero: 1 - APoZ (Hu et al. 2016, "Network Trimming")
  mean,  ///< mean |a|
  rank   ///< mean rank of the maps, of the last two of four dimensions (Lin et al. 2020, "HRank")
};

/// Runs the module in eval mode, without gradients, on batches (each a list of inputs) and scores every unit by the values that
/// convolutions, linear layers and matrix products read of it: the mean over all of them and all batches, weighted by their items.
/// Units that are read by none of these, or for `rank` in no image, have infinite importance. The module is left as it was. Throws
/// ulp::Error without batches, and as GraphModule::run() does.
ULP_API Importance activation_importance(const graph::GraphModule& module, const Groups& groups,
                                         ActivationScore score,
                                         const std::vector<std::vector<at::Tensor>>& batches,
                                         Normalization normalization = Normalization::mean);

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::ActivationScore> {
  using enum ulp::prune::ActivationScore;
  static constexpr std::array<Word<ulp::prune::ActivationScore>, 3> list{
      {{apoz, "apoz", "share of numbers that are not zero"},
       {mean, "mean", "mean |a|"},
       {rank, "rank", "rank of the maps"}}};
};
