#include "ulp/prune/structured/prune_channels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <set>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/base/nearest_names.h"
#include "ulp/prune/structured/activation_importance.h"

namespace ulp::prune {

namespace {

constexpr const char* kPruneChannels = "prune.prune_channels";

/// "conv1" of "conv1.weight"; a tensor of the model itself has no path.
std::string_view path_of_tensor(std::string_view tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : tensor.substr(0, dot);
}

/// Paths of all modules with a tensor: others make no channels.
std::set<std::string_view> module_paths(const graph::Graph& graph) {
  std::set<std::string_view> paths;
  for (const auto& [name, attribute] : graph.attributes()) paths.insert(path_of_tensor(name));
  paths.erase(std::string_view{});
  return paths;
}

/// Whether a module of the path makes, scales or shifts the group's units, rather than reading them.
bool makes_units(const Group& group, std::string_view path) {
  return std::ranges::any_of(group.members, [&](const Member& member) {
    return member.role != Role::column && matches_path(path, path_of_tensor(member.tensor));
  });
}

/// Of each group, why nothing of it goes; empty where something may.
std::vector<std::string> wholes(const graph::Graph& graph, const Groups& groups,
                                const ChannelOptions& options) {
  std::vector<std::string> reasons(groups.groups.size());
  const std::set<std::string_view> paths = module_paths(graph);
  for (const std::string& name : options.keep) {
    if (std::ranges::none_of(paths, [&](std::string_view path) { return matches_path(name, path); }))
      fail(kPruneChannels, "expected paths of modules of the graph in keep, got '", name,
           "'; the nearest are ", nearest_names(name, {paths.begin(), paths.end()}));
    for (size_t g = 0; g < reasons.size(); ++g) {
      if (makes_units(groups.groups[g], name)) reasons[g] = "'" + name + "' is in keep";
    }
  }
  return reasons;
}

Importance scores_of(const graph::GraphModule& module, const Groups& groups, const ChannelOptions& options) {
  const Criterion criterion = options.criterion;
  const bool shapley = criterion == Criterion::shapley, activations = criterion == Criterion::apoz ||
                                                                      criterion == Criterion::activation ||
                                                                      criterion == Criterion::rank;
  if ((shapley || activations) && options.batches.empty())
    fail(kPruneChannels, "expected batches for the criterion ", enum_name(criterion), ", got none");
  if (shapley) {
    if (!options.loss) fail(kPruneChannels, "expected a loss for the criterion shapley, got none");
    return shapley_values(module, groups, options.batches, options.loss, options.shapley).values;
  }
  if (activations) {
    const ActivationScore score = criterion == Criterion::apoz   ? ActivationScore::apoz
                                  : criterion == Criterion::rank ? ActivationScore::rank
                                                                 : ActivationScore::mean;
    return activation_importance(module, groups, score, options.batches);
  }
  return importance(
      module, groups,
      {.criterion = criterion, .seed = options.seed, .squared_gradients = options.squared_gradients});
}

/// Groups that are to stay whole get scores which never go; those that the criterion says nothing of get a reason.
void keep_whole(const Groups& groups, Criterion criterion, Importance& scores,
                std::vector<std::string>& reasons) {
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    if (!reasons[g].empty()) {
      std::ranges::fill(scores[g], std::numeric_limits<double>::infinity());
    } else if (groups.groups[g].units == 1) {
      reasons[g] = "it is a single one";
    } else if (std::ranges::none_of(scores[g], [](double score) { return std::isfinite(score); })) {
      reasons[g] = std::string("the criterion ") + enum_name(criterion) + " says nothing of it";
    }
  }
}

[[noreturn]] void fail_with_nothing(const Groups& groups, const std::vector<std::string>& reasons) {
  constexpr size_t kShown = 8;
  std::vector<Obstacle> all;
  for (size_t g = 0; g < reasons.size(); ++g) all.push_back({groups.groups[g].name(), reasons[g]});
  all.insert(all.end(), groups.obstacles.begin(), groups.obstacles.end());
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i)
    text += (i == 0 ? ": '" : "; '") + all[i].layer + "': " + all[i].reason;
  if (all.size() > kShown) text += "; and " + std::to_string(all.size() - kShown) + " more";
  fail(kPruneChannels, "expected a network with channels, heads or neurons that may be cut, got none",
       text.empty() ? ": it has no layer with weights" : text);
}

double percent_left(int64_t before, int64_t after) {
  return before == 0 ? 100 : 100 * static_cast<double>(after) / static_cast<double>(before);
}

}  // namespace

void ChannelOptions::validate() const {
  if (!(share >= 0 && share < 1)) fail(kPruneChannels, "expected share in [0, 1), got ", share);
  if (multiple < 1) fail(kPruneChannels, "expected multiple of at least 1, got ", multiple);
  if (criterion == Criterion::shapley) shapley.validate();
}

PrunedChannels prune_channels(const graph::GraphModule& module, const ChannelOptions& options) {
  options.validate();
  PrunedChannels result;
  result.groups = groups(module.graph(), {.inexact = options.inexact});
  const Groups& found = result.groups;
  std::vector<std::string> reasons = wholes(module.graph(), found, options);
  if (std::ranges::none_of(reasons, [](const std::string& reason) { return reason.empty(); }))
    fail_with_nothing(found, reasons);
  Importance scores = scores_of(module, found, options);
  keep_whole(found, options.criterion, scores, reasons);
  if (std::ranges::none_of(reasons, [](const std::string& reason) { return reason.empty(); }))
    fail_with_nothing(found, reasons);
  result.removals = select_units(found, scores, {.amount = options.share, .round_to = options.multiple});
  RemovalResult made = ulp::prune::remove_units(module, found, result.removals);
  result.module = std::move(made.module);
  result.kept = std::move(made.kept);
  result.before = size_of(module.graph());
  result.after = size_of(result.module->graph());
  for (size_t g = 0; g < found.groups.size(); ++g) {
    const Group& group = found.groups[g];
    const auto removed = static_cast<int64_t>(result.removals.units[g].size());
    result.cut.push_back({group.name(), group.units, group.units - removed, reasons[g]});
  }
  return result;
}

std::ostream& operator<<(std::ostream& out, const PrunedChannels& pruned) {
  for (const GroupRemoval& group : pruned.cut) {
    out << group.name << ": " << group.before << " -> " << group.after << " units";
    if (!group.whole.empty()) out << " (" << group.whole << ")";
    out << "\n";
  }
  const auto size = [&](const char* what, int64_t before, int64_t after) {
    const double left = std::round(10 * percent_left(before, after)) / 10;
    out << what << ": " << before << " -> " << after << ", " << left << " % are left\n";
  };
  size("parameters", pruned.before.parameters, pruned.after.parameters);
  size("MACs", pruned.before.macs, pruned.after.macs);
  for (const Group& group : pruned.groups.groups) {
    for (const std::string& note : group.notes) out << "note: " << group.name() << ": " << note << "\n";
  }
  for (const Obstacle& obstacle : pruned.groups.obstacles)
    out << "not cut: " << obstacle.layer << ": " << obstacle.reason << "\n";
  return out;
}

}  // namespace ulp::prune
