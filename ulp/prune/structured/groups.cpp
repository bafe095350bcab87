#include "ulp/prune/structured/groups.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "ulp/prune/structured/copies.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

using graph::Attribute;

namespace {

/// "layer1.0.conv1" of "layer1.0.conv1.weight".
std::string layer_of(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? tensor : tensor.substr(0, dot);
}

/// Where a class of positions is: indices by (place of the attribute, dimension).
using Places = std::map<std::pair<size_t, int64_t>, std::vector<int64_t>>;

struct Unit {
  Places places;
  bool has_parameter = false;
  Position root = 0;
};

/// Of each class, a number for the values that it is in. Units that are not in the same values are no group, so that of each
/// value something is left where something of each group is: the halves of a chunk, for instance.
std::vector<uint64_t> values_of_classes(const graph::Graph& graph, const Tracker& tracker) {
  std::vector<uint64_t> numbers(tracker.axes().size());
  uint64_t place = 0;
  for (const auto& node : graph.nodes()) {
    for (const auto& value : node->outputs()) {
      for (const Axis& axis : tracker.layout(value.get()).dims) {
        std::map<Position, uint64_t> counts;
        for (const Position position : axis) ++counts[tracker.axes().find(position)];
        ++place;
        for (const auto& [root, count] : counts)
          numbers[root] = (numbers[root] ^ (place * 0x9e3779b97f4a7c15u + count)) * 0xbf58476d1ce4e5b9u;
      }
    }
  }
  return numbers;
}

/// Classes that are free and cut a parameter, in the order of the attributes.
std::vector<Unit> units_of(const graph::Graph& graph, const Tracker& tracker) {
  std::vector<Unit> units;
  std::map<Position, size_t> index;
  for (size_t a = 0; a < graph.attributes().size(); ++a) {
    const auto& [name, attribute] = graph.attributes()[a];
    const auto found = tracker.attributes().find(name);
    if (found == tracker.attributes().end()) continue;
    for (size_t d = 0; d < found->second.dims.size(); ++d) {
      const Axis& axis = found->second.dims[d];
      for (size_t i = 0; i < axis.size(); ++i) {
        if (tracker.axes().fixed(axis[i])) continue;
        const Position root = tracker.axes().find(axis[i]);
        const auto [at, fresh] = index.emplace(root, units.size());
        if (fresh) units.push_back({{}, false, root});
        Unit& unit = units[at->second];
        unit.places[{a, static_cast<int64_t>(d)}].push_back(static_cast<int64_t>(i));
        unit.has_parameter |= attribute.kind == Attribute::Kind::parameter;
      }
    }
  }
  std::erase_if(units, [](const Unit& unit) { return !unit.has_parameter; });
  return units;
}

Role role_of(const graph::Graph& graph, const Tracker& tracker, size_t attribute, int64_t dim,
             int64_t index) {
  const auto& [name, stored] = graph.attributes()[attribute];
  const Role* said = tracker.role(tracker.attributes().at(name).dims[dim][index]);
  if (said) return *said;
  return stored.kind == Attribute::Kind::parameter ? Role::row : Role::constant;
}

void add_layers(Group& group) {
  const auto add = [](std::vector<std::string>& layers, const std::string& layer) {
    if (std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
  };
  for (const Member& member : group.members) {
    if (member.role == Role::row) add(group.producers, layer_of(member.tensor));
    if (member.role == Role::column) add(group.consumers, layer_of(member.tensor));
  }
}

/// "aten::conv2d weight 0 row" of each op that reads an attribute with this name, by the attribute.
using Readers = std::map<std::string, std::vector<std::pair<size_t, std::string>>>;

bool holds(const graph::Argument& arg, const graph::Value* value) {
  return (arg.is_value() && arg.value == value) ||
         std::ranges::any_of(arg.items, [&](const graph::Argument& item) { return holds(item, value); });
}

/// Who reads each attribute: place in the graph, op and argument.
Readers readers_of(const graph::Graph& graph) {
  Readers found;
  size_t place = 0;
  for (const auto& node : graph.nodes()) {
    ++place;
    if (node->kind() != graph::Node::Kind::call || node->train_only) continue;
    std::set<const graph::Value*> seen;
    for (const graph::Value* value : node->reads()) {
      if (value->producer->kind() != graph::Node::Kind::attribute || !seen.insert(value).second) continue;
      for (size_t i = 0; i < node->args.size(); ++i) {
        if (holds(node->args[i], value))
          found[value->producer->target()].emplace_back(
              place, std::string(node->op()) + " " + node->schema().arguments()[i].name());
      }
    }
  }
  return found;
}

std::string pattern_of(const Group& group, const Readers& readers) {
  std::vector<std::pair<size_t, std::string>> lines;
  for (const Member& member : group.members) {
    const auto found = readers.find(member.tensor);
    if (found == readers.end()) continue;
    for (const auto& [place, reader] : found->second)
      lines.emplace_back(place, reader + " " + std::to_string(member.dim) + " " +
                                    std::string(to_string(member.role)) + "\n");
  }
  std::ranges::sort(lines);
  std::string pattern;
  for (const auto& [place, line] : lines) pattern += line;
  return pattern;
}

/// The axis of a weight that makes channels and of which every position stays; null for none. A weight that no layer reads
/// itself (it is quantized first, say) has it where all its axes stay.
const Axis* fixed_rows(const Tracker& tracker, const Layout& weight) {
  const auto stays = [&](const Axis& axis) {
    return std::ranges::all_of(axis, [&](Position p) { return tracker.axes().fixed(p); });
  };
  const auto said = [&](const Axis& axis) { return axis.empty() ? nullptr : tracker.role(axis[0]); };
  for (const Axis& axis : weight.dims) {
    if (said(axis) && *said(axis) == Role::row && stays(axis)) return &axis;
  }
  const bool read = std::ranges::any_of(weight.dims, [&](const Axis& axis) { return said(axis) != nullptr; });
  if (read || !std::ranges::all_of(weight.dims, stays)) return nullptr;
  const auto first = std::ranges::find_if(weight.dims, [](const Axis& axis) { return axis.size() > 1; });
  return first == weight.dims.end() ? nullptr : &*first;
}

/// Layers of which every row stays, and those that are a module in the graph, as QAT makes them.
std::vector<Obstacle> obstacles_of(const graph::Graph& graph, const Tracker& tracker) {
  std::vector<Obstacle> found;
  std::set<std::string> seen;
  for (const auto& [name, attribute] : graph.attributes()) {
    const auto layout = tracker.attributes().find(name);
    if (layout == tracker.attributes().end() || attribute.tensor.dim() < 2 ||
        attribute.kind != Attribute::Kind::parameter)
      continue;
    const Axis* rows = fixed_rows(tracker, layout->second);
    if (rows && seen.insert(layer_of(name)).second)
      found.push_back({layer_of(name), tracker.axes().reason(rows->front())});
  }
  for (const auto& node : graph.nodes()) {
    if (node->kind() == graph::Node::Kind::module && !node->scope.empty() && seen.insert(node->scope).second)
      found.push_back({node->scope, module_reason(*node)});
  }
  return found;
}

}  // namespace

std::string_view to_string(Role role) {
  static constexpr std::string_view kNames[] = {"row", "column", "scale", "shift", "statistic", "constant"};
  return kNames[static_cast<size_t>(role)];
}

std::string Group::name() const {
  if (!producers.empty()) return producers[0];
  return consumers.empty() ? members.at(0).tensor : consumers[0];
}

Groups groups(const graph::Graph& graph, const GroupOptions& options) {
  graph.verify();
  const Tracker tracker(graph, options);
  Groups result{options, {}, obstacles_of(graph, tracker)};
  // Units of one group are in the same places, as often, in the same roles.
  using Pattern = std::vector<std::tuple<size_t, int64_t, size_t, Role>>;
  std::map<std::pair<uint64_t, Pattern>, size_t> index;
  const std::vector<uint64_t> values = values_of_classes(graph, tracker);
  std::map<Position, size_t> group_of;
  for (const Unit& unit : units_of(graph, tracker)) {
    Pattern pattern;
    for (const auto& [place, indices] : unit.places) {
      pattern.emplace_back(place.first, place.second, indices.size(),
                           role_of(graph, tracker, place.first, place.second, indices[0]));
    }
    const auto [at, fresh] = index.emplace(std::pair(values[unit.root], pattern), result.groups.size());
    if (fresh) {
      Group& group = result.groups.emplace_back();
      for (const auto& [attribute, dim, count, role] : pattern)
        group.members.push_back({graph.attributes()[attribute].first, dim, role, {}});
      add_layers(group);
    }
    Group& group = result.groups[at->second];
    size_t m = 0;
    for (const auto& [place, indices] : unit.places) group.members[m++].indices.push_back(indices);
    ++group.units;
    group_of[unit.root] = at->second;
  }
  const Readers readers = readers_of(graph);
  for (Group& group : result.groups) group.pattern = pattern_of(group, readers);
  for (const auto& [root, why] : not_copied(graph, tracker)) {
    const auto at = group_of.find(root);
    if (at != group_of.end() && result.groups[at->second].not_copied.empty())
      result.groups[at->second].not_copied = why;
  }
  for (const auto& [position, sentence] : tracker.axes().notes()) {
    const auto at = group_of.find(tracker.axes().find(position));
    if (at == group_of.end()) continue;
    std::vector<std::string>& notes = result.groups[at->second].notes;
    if (std::ranges::find(notes, sentence) == notes.end()) notes.push_back(sentence);
  }
  return result;
}

std::ostream& operator<<(std::ostream& out, const Groups& groups) {
  for (const Group& group : groups.groups) {
    out << group.name() << ": " << group.units << " units\n";
    for (const Member& member : group.members) {
      out << "  " << to_string(member.role) << " " << member.tensor << " dim " << member.dim;
      if (member.indices[0].size() > 1) out << ", " << member.indices[0].size() << " each";
      out << "\n";
    }
    for (const std::string& note : group.notes) out << "  note: " << note << "\n";
  }
  for (const Obstacle& obstacle : groups.obstacles)
    out << "not pruned: " << obstacle.layer << ": " << obstacle.reason << "\n";
  return out;
}

}  // namespace ulp::prune
