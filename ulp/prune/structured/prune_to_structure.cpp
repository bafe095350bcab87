#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/prune/structured/structure_file.h"

namespace ulp::prune {

namespace {

/// Throws where the cut leaves something else than what was wanted.
void check_left(const Kept& left, const Kept& wanted, size_t number) {
  for (const auto& [name, dims] : left) {
    const auto found = wanted.find(name);
    if (found == wanted.end() || found->second != dims)
      fail("prune.prune_to_structure", "expected what was kept of '", name, "' in cut ", number,
           " to be what a cut leaves, got something else");
  }
  for (const auto& [name, dims] : wanted) {
    if (!left.contains(name))
      fail("prune.prune_to_structure", "expected the structure of this model, got one with '", name,
           "' in cut ", number, ", which it has not");
  }
}

}  // namespace

Removals removals_of(const Groups& groups, const Kept& kept) {
  const char* where = "prune.removals_of";
  Removals result;
  const auto keeps = [&](const Member& member, int64_t index) {
    const auto found = kept.find(member.tensor);
    if (found == kept.end() || member.dim >= static_cast<int64_t>(found->second.size()))
      fail(where, "expected what was kept of '", member.tensor, "', got nothing of it");
    return std::ranges::binary_search(found->second[static_cast<size_t>(member.dim)], index);
  };
  for (const Group& group : groups.groups) {
    std::vector<int64_t>& units = result.units.emplace_back();
    for (int64_t u = 0; u < group.units; ++u) {
      const Member& first = group.members.at(0);
      const bool stays = keeps(first, first.indices[static_cast<size_t>(u)].at(0));
      if (!stays) units.push_back(u);
      for (const Member& member : group.members) {
        for (const int64_t index : member.indices[static_cast<size_t>(u)]) {
          if (keeps(member, index) != stays)
            fail(where, "expected whole units to go, got a part of unit ", u, " of '", group.name(),
                 "': index ", index, " of dimension ", member.dim, " of '", member.tensor, "' ",
                 stays ? "went" : "stayed");
        }
      }
    }
  }
  return result;
}

RemovalResult prune_to_structure(const graph::GraphModule& module, const Structure& structure) {
  RemovalResult result = remove_units(module, {}, {});
  for (size_t i = 0; i < structure.cuts.size(); ++i) {
    const Kept& wanted = structure.cuts[i];
    const Groups found = groups(result.module->graph(), {.inexact = structure.inexact});
    RemovalResult next = remove_units(*result.module, found, removals_of(found, wanted));
    check_left(next.kept, wanted, i + 1);
    result = {std::move(next.module), compose(result.kept, next.kept)};
  }
  return result;
}

Kept compose(const Kept& first, const Kept& second) {
  Kept result;
  for (const auto& [name, dims] : first) {
    const auto next = second.find(name);
    if (next == second.end() || next->second.size() != dims.size())
      fail("prune.compose", "expected what was kept of '", name, "' by both cuts, got it by one");
    std::vector<std::vector<int64_t>>& made = result[name];
    for (size_t d = 0; d < dims.size(); ++d) {
      std::vector<int64_t>& indices = made.emplace_back();
      for (const int64_t index : next->second[d]) {
        if (index < 0 || index >= static_cast<int64_t>(dims[d].size()))
          fail("prune.compose", "expected indices below ", dims[d].size(), " of dimension ", d, " of '", name,
               "', got ", index);
        indices.push_back(dims[d][static_cast<size_t>(index)]);
      }
    }
  }
  for (const auto& [name, dims] : second) {
    if (!first.contains(name))
      fail("prune.compose", "expected what was kept of '", name, "' by both cuts, got it by one");
  }
  return result;
}

}  // namespace ulp::prune
