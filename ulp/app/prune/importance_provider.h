// What a recipe of channels needs beside the weights: gradients, activations, a table of widths, a clock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ulp/app/prune/latency.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/prune/structured/channel_pruning_recipe.h"
#include "ulp/train/task.h"

namespace ulp::app {

/// Makes each when it is first needed.
class ImportanceProvider {
 public:
  /// What it works with; `dense` must outlive it.
  struct Setup {
    const graph::GraphModule* dense = nullptr;  ///< the network before all cuts
    std::filesystem::path width_table = {};     ///< read, or measured and written; empty: measured
    int threads = 0;                            ///< of engines
    std::function<std::vector<train::TaskBatch>()> batches;  ///< that units are scored with
    /// The same of a network with several inputs, for scores of activations.
    std::vector<std::vector<at::Tensor>> inputs = {};
    std::function<void(const Stage& stage)> progress;  ///< may be empty
  };
  ImportanceProvider(const prune::ChannelPruningRecipe& recipe, Setup setup);

  /// Cuts to `share` of the module's own measure. Gradients that the criterion reads are left on the module.
  prune::PrunedModel prune(graph::GraphModule& module, double share);
  /// The recipe's measure of a module.
  double measure(const graph::GraphModule& module);
  /// What a cut has to say for itself, one sentence each.
  std::vector<std::string> notes(const prune::PrunedModel& model) const;

 private:
  void compute_gradients(graph::GraphModule& module);
  prune::Importance score(const graph::GraphModule& module, const prune::Groups& groups);
  void find_widths();
  double seconds(const graph::GraphModule& module);
  void show(const Stage& stage) const;

  const prune::ChannelPruningRecipe& recipe_;
  Setup setup_;
  prune::SquaredGradients squares_;
  std::optional<prune::WidthTable> widths_;
  std::optional<LatencyMeter> meter_;
  std::map<std::string, int64_t> full_widths_;
  int64_t measurements_ = 0;
};

}  // namespace ulp::app
