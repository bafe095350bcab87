#include "ulp/prune/structured/copies.h"

#include <algorithm>

namespace ulp::prune {

namespace {

using graph::Argument;
using graph::Node;
using graph::Value;

/// Whether values are zeros where a class is copied, once the columns of attributes are.
class ZeroCopies {
 public:
  ZeroCopies(const Tracker& tracker, Position root) : tracker_(tracker), root_(root) {}

  bool is_zero(const Value& value) {
    const auto [at, fresh] = known_.emplace(&value, false);
    if (fresh) {
      const bool zero = decide(value);
      known_[&value] = zero;
      return zero;
    }
    return at->second;
  }

 private:
  bool decide(const Value& value) {
    const Layout& layout = tracker_.layout(&value);
    bool found = false;
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      for (const Position position : layout.dims[d]) {
        if (tracker_.axes().find(position) != root_) continue;
        if (!layout.zero[d]) return false;
        if (value.producer->kind() == Node::Kind::attribute && !is_column(position)) return false;
        found = true;
      }
    }
    const Node& node = *value.producer;
    if (!found || node.kind() == Node::Kind::attribute) return found;
    if (node.kind() != Node::Kind::call) return false;
    const std::vector<Value*> reads = node.reads();
    const auto zero = [&](const Value* read) { return is_zero(*read); };
    return node.is("aten::mul") ? std::ranges::any_of(reads, zero) : std::ranges::all_of(reads, zero);
  }

  bool is_column(Position position) const {
    const Role* said = tracker_.role(position);
    return said != nullptr && *said == Role::column;
  }

  const Tracker& tracker_;
  Position root_;
  std::map<const Value*, bool> known_;
};

}  // namespace

std::map<Position, std::string> not_copied(const graph::Graph& graph, const Tracker& tracker) {
  std::map<Position, std::string> found;
  const Axes& axes = tracker.axes();
  for (const Sum& sum : tracker.sums()) {
    for (const Position position : sum.axis) {
      const Position root = axes.find(position);
      if (axes.fixed(root) || found.contains(root)) continue;
      ZeroCopies copies(tracker, root);
      if (std::ranges::none_of(sum.factors, [&](const Value* factor) { return copies.is_zero(*factor); }))
        found.emplace(root, sum.reason);
    }
  }
  for (const auto& node : graph.nodes()) {
    for (const auto& value : node->outputs()) {
      for (const Axis& axis : tracker.layout(value.get()).dims) {
        if (axis.size() == 1 && !axes.fixed(axis[0]))
          found.emplace(axes.find(axis[0]), "it is a single one in '" + value->name + "'");
      }
    }
  }
  return found;
}

}  // namespace ulp::prune
