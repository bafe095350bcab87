#include "ulp/prune/structured/group_subgraph.h"

#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ulp/base/error.h"

namespace ulp::prune {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// Ops whose result in one channel follows from the argument in this channel alone.
bool within_channels(const Node& node) {
  static constexpr std::array kOps = {
      "aten::batch_norm", "aten::relu",       "aten::relu6",      "aten::hardtanh",   "aten::clamp",
      "aten::gelu",       "aten::silu",       "aten::hardswish",  "aten::leaky_relu", "aten::tanh",
      "aten::elu",        "aten::max_pool1d", "aten::max_pool2d", "aten::avg_pool2d"};
  return std::ranges::any_of(kOps, [&](const char* op) { return node.op() == op; });
}

}  // namespace

/// Tells the nodes of the second part.
class GroupSubgraph::Parts {
 public:
  Parts(const Graph& graph, const Tracker& tracker, const Group& group) : tracker_(tracker) {
    number_units(group);
    for (const Member& member : group.members) {
      const auto [at, fresh] = members_.emplace(member.tensor, member.role == Role::column);
      at->second |= member.role == Role::column;
    }
    for (const auto& node : graph.nodes()) visit(*node);
    for (const auto& node : graph.nodes()) {
      if (!second_.contains(node.get())) continue;
      for (const Value* value : node->reads()) add_boundary(value);
    }
  }

  const std::vector<const Value*>& boundary() const { return boundary_; }
  int64_t nodes() const { return static_cast<int64_t>(second_.size()) - 1; }  // without the result

  /// Where the units are in the values of the boundary.
  std::vector<Place> places(int64_t units) const {
    std::vector<Place> found;
    for (size_t i = 0; i < boundary_.size(); ++i) {
      if (!made_.contains(boundary_[i])) continue;
      const Layout& layout = tracker_.layout(boundary_[i]);
      for (size_t d = 0; d < layout.dims.size(); ++d) {
        if (!has_units(layout.dims[d])) continue;
        Place place{i, static_cast<int64_t>(d), {}};
        place.indices.resize(static_cast<size_t>(units));
        for (size_t p = 0; p < layout.dims[d].size(); ++p) {
          const auto unit = units_.find(tracker_.axes().find(layout.dims[d][p]));
          if (unit != units_.end())
            place.indices[static_cast<size_t>(unit->second)].push_back(static_cast<int64_t>(p));
        }
        found.push_back(std::move(place));
      }
    }
    return found;
  }

 private:
  void number_units(const Group& group) {
    const Member& member = group.members.at(0);
    const auto layout = tracker_.attributes().find(member.tensor);
    if (layout == tracker_.attributes().end() || member.dim >= layout->second.rank())
      fail("prune.shapley", "expected the groups of this graph, got '", member.tensor, "', which it has not");
    const Axis& axis = layout->second.dims[static_cast<size_t>(member.dim)];
    for (size_t u = 0; u < member.indices.size(); ++u) {
      const auto index = static_cast<size_t>(member.indices[u].at(0));
      if (index >= axis.size())
        fail("prune.shapley", "expected the groups of this graph, got index ", index, " of '", member.tensor,
             "'");
      units_[tracker_.axes().find(axis[index])] = static_cast<int64_t>(u);
    }
  }

  bool has_units(const Axis& axis) const {
    return std::ranges::any_of(axis, [&](Position p) { return units_.contains(tracker_.axes().find(p)); });
  }

  /// Zeroing units is zeroing them in what the node makes: it makes them of the group's rows, or channel by
  /// channel of what such nodes make.
  bool makes_channels(const Node& node) const {
    if (node.kind() != Node::Kind::call || node.has_effect()) return false;
    for (const Value* value : node.reads()) {
      if (second_.contains(value->producer)) return false;
      const bool row = value->producer->kind() == Node::Kind::attribute;
      if (row && members_.contains(value->producer->target()) && members_.at(value->producer->target()))
        return false;  // a column
      if (made_.contains(value) && !within_channels(node)) return false;
    }
    for (const auto& value : node.outputs()) {
      const Layout& layout = tracker_.layout(value.get());
      if (!layout.known || !value->meta) return false;
      bool found = false;
      for (size_t d = 0; d < layout.dims.size(); ++d) {
        if (!has_units(layout.dims[d])) continue;
        // A dimension with the batch in it has every position several times.
        if (!layout.zero[d] || !value->meta->sizes[d].constant()) return false;
        found = true;
      }
      if (!found) return false;
    }
    return true;
  }

  void visit(const Node& node) {
    if (node.kind() == Node::Kind::output) second_.insert(&node);
    if (node.kind() != Node::Kind::call && node.kind() != Node::Kind::module) return;
    const bool touched = std::ranges::any_of(node.reads(), [&](const Value* value) {
      return second_.contains(value->producer) || made_.contains(value) ||
             (value->producer->kind() == Node::Kind::attribute &&
              members_.contains(value->producer->target()));
    });
    if (!touched) return;
    if (!makes_channels(node)) {
      second_.insert(&node);
      return;
    }
    for (const auto& value : node.outputs()) made_.insert(value.get());
  }

  void add_boundary(const Value* value) {
    const Node::Kind kind = value->producer->kind();
    if (kind != Node::Kind::call && kind != Node::Kind::module) return;
    if (second_.contains(value->producer) || !seen_.insert(value).second) return;
    boundary_.push_back(value);
  }

  const Tracker& tracker_;
  std::map<Position, int64_t> units_;
  std::map<std::string, bool> members_;  // and whether columns are among their roles
  std::unordered_set<const Node*> second_;
  std::unordered_set<const Value*> made_, seen_;  // values in which units are zeroed
  std::vector<const Value*> boundary_;
};

namespace {

std::map<std::string, Value*> values_by_name(const Graph& graph) {
  std::map<std::string, Value*> found;
  for (const auto& node : graph.nodes()) {
    for (const auto& value : node->outputs()) found[value->name] = value.get();
  }
  return found;
}

at::Tensor index_of(const std::vector<int64_t>& indices, const at::Tensor& like) {
  return torch::tensor(indices, like.options().dtype(at::kLong));
}

}  // namespace

GroupSubgraph::GroupSubgraph(const Graph& graph, const Tracker& tracker, const Group& group) {
  const Parts parts(graph, tracker, group);
  inputs_ = graph.inputs().size();
  nodes_ = parts.nodes();
  value_places_ = parts.places(group.units);

  const std::shared_ptr<Graph> first = graph.clone(), second = graph.clone();
  const std::map<std::string, Value*> in_first = values_by_name(*first), in_second = values_by_name(*second);
  std::vector<Argument> results;
  for (const Value* value : parts.boundary()) {
    results.emplace_back(in_first.at(value->name));
    second->replace_uses(in_second.at(value->name), second->add_input("boundary." + value->name, -1));
  }
  first->set_output(Argument::tuple(std::move(results)));
  first->remove_dead();
  second->remove_dead(/*attributes=*/true);
  take_parameters(*second, group);
  first_ = std::make_unique<graph::GraphModule>(first);
  second_ = std::make_unique<graph::GraphModule>(second);
  first_->eval();
  second_->eval();
}

void GroupSubgraph::take_parameters(Graph& second, const Group& group) {
  std::map<const void*, size_t> taken;  // a tensor that several names have stays one
  for (const Member& member : group.members) {
    const Attribute* attribute = second.find_attribute(member.tensor);
    if (!attribute || member.role == Role::constant || member.tensor.ends_with("running_var")) continue;
    const at::Tensor tensor = attribute->tensor;
    const auto own =
        std::ranges::find_if(parameters_, [&](const at::Tensor& one) { return one.is_same(tensor); });
    size_t at = static_cast<size_t>(own - parameters_.begin());
    if (own == parameters_.end()) {
      const auto [found, fresh] = taken.emplace(tensor.unsafeGetTensorImpl(), parameters_.size());
      at = found->second;
      if (fresh) {
        kept_.push_back(tensor.detach());
        parameters_.push_back(tensor.detach().clone());
      }
      second.set_attribute(member.tensor, {attribute->kind, parameters_[at]});
    }
    parameter_places_.push_back({at, member.dim, member.indices});
  }
}

std::vector<at::Tensor> GroupSubgraph::boundary(const std::vector<at::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  return first_->forward_all(inputs);
}

void GroupSubgraph::start(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(kept_[i]);
  given_ = inputs;
  given_.insert(given_.end(), values.begin(), values.end());
  std::set<size_t> copied;
  for (const Place& place : value_places_) {
    at::Tensor& value = given_[inputs_ + place.tensor];
    if (copied.insert(place.tensor).second) value = value.clone();
  }
}

void GroupSubgraph::zero(int64_t unit) {
  const torch::NoGradGuard no_grad;
  const auto fill = [&](const Place& place, at::Tensor& tensor) {
    const std::vector<int64_t>& indices = place.indices.at(static_cast<size_t>(unit));
    if (!indices.empty()) tensor.index_fill_(place.dim, index_of(indices, tensor), 0);
  };
  for (const Place& place : value_places_) fill(place, given_.at(inputs_ + place.tensor));
  for (const Place& place : parameter_places_) fill(place, parameters_[place.tensor]);
}

std::vector<at::Tensor> GroupSubgraph::run() {
  const torch::NoGradGuard no_grad;
  return second_->forward_all(given_);
}

}  // namespace ulp::prune
