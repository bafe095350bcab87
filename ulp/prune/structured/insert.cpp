#include "ulp/prune/structured/insert.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/prune/structured/removed.h"

namespace ulp::prune {

namespace {

constexpr const char* kInsertUnitsWhere = "prune.insert_units";

void check(const Groups& groups, const std::vector<std::vector<int64_t>>& units) {
  if (units.size() != groups.groups.size())
    fail(kInsertUnitsWhere, "expected units for each of ", groups.groups.size(), " groups, got ",
         units.size());
  for (size_t g = 0; g < units.size(); ++g) {
    const Group& group = groups.groups[g];
    if (!units[g].empty() && !group.not_copied.empty())
      fail(kInsertUnitsWhere, "expected units that can be copied, got those of '", group.name(),
           "': ", group.not_copied);
    if (!units[g].empty() && !can_insert(group))
      fail(kInsertUnitsWhere, "expected units of one index in each tensor, got those of '", group.name(),
           "', which have more");
    std::set<int64_t> seen;
    for (const int64_t unit : units[g]) {
      if (unit < 0 || unit >= group.units || !seen.insert(unit).second)
        fail(kInsertUnitsWhere, "expected units below ", group.units, " of '", group.name(),
             "', each once, got ", unit);
    }
  }
}

/// Where an index stands for the second time.
std::vector<int64_t> places_of_copies(const std::vector<int64_t>& sources) {
  std::vector<int64_t> places;
  std::set<int64_t> seen;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!seen.insert(sources[i]).second) places.push_back(static_cast<int64_t>(i));
  }
  return places;
}

at::Tensor indices_tensor(const std::vector<int64_t>& indices, const at::Tensor& like) {
  return torch::tensor(indices, like.options().dtype(at::kLong).requires_grad(false));
}

const Member& same_member(const Group& group, const Member& member) {
  for (const Member& other : group.members) {
    if (other.tensor == member.tensor && other.dim == member.dim) return other;
  }
  fail("prune.replace_unit", "expected a group with '", member.tensor, "', got one without");
}

/// What takes the place of what.
struct Replaced {
  at::Tensor tensor, slices;
  int64_t dim;
  at::Tensor at;
};

}  // namespace

bool can_insert(const Group& group) {
  if (!group.not_copied.empty()) return false;
  return std::ranges::all_of(group.members, [](const Member& member) {
    return std::ranges::all_of(member.indices, [](const auto& unit) { return unit.size() == 1; });
  });
}

std::shared_ptr<graph::GraphModule> insert_units(const graph::GraphModule& module, const Groups& groups,
                                                 const std::vector<std::vector<int64_t>>& units) {
  check(groups, units);
  const Tracker tracker(module.graph(), groups.options);
  const RemovalResult made = rebuilt(module, tracker, with_copies(tracker, groups, units, 2));
  const torch::NoGradGuard no_grad;
  for (const Group& group : groups.groups) {
    for (const Member& member : group.members) {
      const std::vector<int64_t> copies =
          places_of_copies(made.kept.at(member.tensor)[static_cast<size_t>(member.dim)]);
      if (member.role != Role::column || copies.empty()) continue;
      at::Tensor tensor = made.module->graph().find_attribute(member.tensor)->tensor.detach();
      tensor.index_fill_(member.dim, indices_tensor(copies, tensor), 0);
    }
  }
  return made.module;
}

void replace_unit(graph::GraphModule& module, const Group& group, int64_t unit,
                  const graph::GraphModule& other, const Group& other_group, int64_t from) {
  constexpr const char* kReplace = "prune.replace_unit";
  if (unit < 0 || unit >= group.units || from < 0 || from >= other_group.units)
    fail(kReplace, "expected units below ", group.units, " and ", other_group.units, " of '", group.name(),
         "', got ", unit, " and ", from);
  const torch::NoGradGuard no_grad;
  std::vector<Replaced> all;
  for (const Member& member : group.members) {
    const Member& source = same_member(other_group, member);
    const graph::Attribute *to = module.graph().find_attribute(member.tensor),
                           *of = other.graph().find_attribute(member.tensor);
    if (!to || !of) fail(kReplace, "expected '", member.tensor, "' in both modules, got none in one");
    const auto &places = member.indices[static_cast<size_t>(unit)],
               &sources = source.indices[static_cast<size_t>(from)];
    Replaced one{to->tensor.detach(),
                 of->tensor.detach().index_select(member.dim, indices_tensor(sources, of->tensor)),
                 member.dim, indices_tensor(places, to->tensor)};
    std::vector<int64_t> wanted = one.tensor.sizes().vec();
    wanted[static_cast<size_t>(member.dim)] = static_cast<int64_t>(places.size());
    if (one.slices.sizes() != at::IntArrayRef(wanted))
      fail(kReplace, "expected slices of sizes ", at::IntArrayRef(wanted), " of '", member.tensor, "', got ",
           one.slices.sizes());
    all.push_back(std::move(one));
  }
  for (Replaced& one : all) one.tensor.index_copy_(one.dim, one.at, one.slices.to(one.tensor.scalar_type()));
}

}  // namespace ulp::prune
