#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

/// The affine parameters and statistics of a norm follow one axis.
void follow(Visit& visit, const Axis& channels) {
  const auto join = [&](const char* name, Role role) {
    if (!visit.has(name)) return;
    const Layout& layout = visit.in(name);
    visit.mark(layout.dims.at(0), role);
    visit.unite(channels, layout.dims[0]);
  };
  join("weight", Role::scale);
  join("bias", Role::shift);
}

void follow_statistics(Visit& visit, const Axis& channels) {
  for (const char* name : {"running_mean", "running_var"}) {
    if (!visit.has(name)) continue;
    visit.mark(visit.in(name).dims.at(0), Role::statistic);
    visit.unite(channels, visit.in(name).dims[0]);
  }
}

/// All but the channels are measured over.
void measured(Visit& visit, const Layout& x, bool batch) {
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d != 1 && (d != 0 || batch)) visit.inexact(x.dims[d], "it measures mean and variance over them");
  }
}

/// Batch and instance norm: every channel has numbers of its own.
void channel_norm(Visit& visit) {
  Layout result = visit.in("input");
  if (result.rank() < 2) visit.refuse("its input has no channels");
  measured(visit, result, visit.node.is("aten::batch_norm"));
  follow(visit, result.dims[1]);
  follow_statistics(visit, result.dims[1]);
  const bool scaled = visit.has("weight");
  result.zero.assign(result.dims.size(), false);
  result.zero[1] = scaled;  // gamma and beta of a removed channel are zero
  visit.out(std::move(result));
}

void layer_norm(Visit& visit) {
  Layout result = visit.in("input");
  const size_t count = visit.integers("normalized_shape").size(), first = result.dims.size() - count;
  std::vector<Axis> normalized;
  for (size_t d = first; d < result.dims.size(); ++d) {
    visit.inexact(result.dims[d], "it measures mean and variance over them");
    normalized.push_back(result.dims[d]);
  }
  for (const char* name : {"weight", "bias"}) {
    if (!visit.has(name)) continue;
    const Layout& layout = visit.in(name);
    for (size_t i = 0; i < count; ++i) {
      visit.mark(layout.dims.at(i), name[0] == 'w' ? Role::scale : Role::shift);
      visit.unite(layout.dims[i], normalized[i]);
    }
  }
  rewrite_sizes(visit, "normalized_shape", normalized);
  result.zero.assign(result.dims.size(), false);
  for (size_t d = first; d < result.dims.size(); ++d) result.zero[d] = visit.has("weight");
  visit.out(std::move(result));
}

/// Whole groups go without a change to the others.
void group_norm(Visit& visit) {
  Layout result = visit.in("input");
  if (result.rank() < 2) visit.refuse("its input has no channels");
  const int64_t groups = visit.integer("num_groups"), channels = static_cast<int64_t>(result.dims[1].size());
  const Axis group = visit.axes().make(groups), within = visit.axes().make(channels / groups);
  visit.inexact(within, "it measures mean and variance over the channels of a group");
  if (groups == 1) visit.inexact(result.dims[1], "it measures mean and variance over them");
  visit.axes().product(result.dims[1], {group, within}, Preference::largest,
                       visit.reason("its groups are cut otherwise"));
  measured(visit, result, false);
  follow(visit, result.dims[1]);
  visit.rewrite([group](graph::Graph&, graph::Node& node, const Survivors& left) {
    set_integer(node.arg("num_groups"), left.count(group));
  });
  result.zero.assign(result.dims.size(), false);
  result.zero[1] = visit.has("weight");
  visit.out(std::move(result));
}

constexpr Rule kNormRules[] = {{"aten::batch_norm", channel_norm},
                               {"aten::instance_norm", channel_norm},
                               {"aten::layer_norm", layer_norm},
                               {"aten::group_norm", group_norm}};

}  // namespace

std::span<const Rule> norm_rules() {
  return kNormRules;
}

}  // namespace ulp::prune
