// Follows every dimension of every value through a graph, by one rule an op. Internal to the room.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/prune/structured/axes.h"
#include "ulp/prune/structured/groups.h"

namespace ulp::prune {

/// The dimensions of one value.
struct Layout {
  std::vector<Axis> dims;
  /// Of each dimension: a removed position holds zeros in the masked network.
  std::vector<char> zero;
  bool known = true;  ///< false for a value without sizes, of which nothing can be said

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  /// The dimension with this index, from the end if it is negative.
  size_t dim(int64_t index) const { return static_cast<size_t>(index < 0 ? index + rank() : index); }
  void add(Axis axis, bool zeros) {
    dims.push_back(std::move(axis));
    zero.push_back(zeros);
  }
};

/// A size as count * what is free: "4N" is {4, {1}}, 32 is {32, {}}. Every size without such a form is opaque.
struct Extent {
  int64_t count = 1;
  std::vector<int32_t> powers;  ///< of the batch and of the free dimensions
  bool opaque = false;
};
Extent extent_of(const graph::SizeExpr& size);
/// The expression with another count. The expression is not opaque.
graph::SizeExpr with_count(const graph::SizeExpr& size, int64_t count);

/// What is left of each axis after a cut, or there after units were copied.
class Survivors {
 public:
  /// `copies`: how many of each class of positions there are; 0 for those that are removed.
  Survivors(const Axes& axes, std::vector<uint8_t> copies) : axes_(&axes), copies_(std::move(copies)) {}
  bool keeps(Position position) const { return copies_[axes_->find(position)] != 0; }
  int64_t count(const Axis& axis) const { return static_cast<int64_t>(indices(axis).size()); }
  /// Where each position comes from. Neighbours of one class are copied together.
  std::vector<int64_t> indices(const Axis& axis) const;
  bool whole(const Axis& axis) const { return count(axis) == static_cast<int64_t>(axis.size()); }

 private:
  const Axes* axes_;
  std::vector<uint8_t> copies_;  ///< by class
};

/// An op adds up over an axis, and multiplies it with these first.
struct Sum {
  Axis axis;
  std::vector<const graph::Value*> factors;
  std::string reason;  ///< "aten::sum 'sum' sums over them"
};

/// Brings the literals of a node of the cut graph in line with what is left.
using Rewrite = std::function<void(graph::Graph&, graph::Node&, const Survivors&)>;

/// "module 'observer_relu' keeps its channels".
std::string module_reason(const graph::Node& node);

/// Runs the rules over a graph.
class Tracker {
 public:
  Tracker(const graph::Graph& graph, const GroupOptions& options);

  const Axes& axes() const { return axes_; }
  const Layout& layout(const graph::Value* value) const { return layouts_.at(value); }
  /// Of each attribute that the graph reads.
  const std::map<std::string, Layout>& attributes() const { return attributes_; }
  /// By the node's place in the graph.
  const std::vector<std::pair<size_t, Rewrite>>& rewrites() const { return rewrites_; }
  const std::vector<Sum>& sums() const { return sums_; }
  /// What a rule said that an attribute's position is; null where none did.
  const Role* role(Position position) const;

 private:
  friend class Visit;
  void visit(const graph::Node& node, size_t place);
  void visit_attribute(const graph::Node& node);
  void refuse(const graph::Node& node, const std::string& why);

  const graph::Graph& graph_;
  GroupOptions options_;
  Axes axes_;
  std::unordered_map<const graph::Value*, Layout> layouts_;
  std::map<std::string, Layout> attributes_;
  std::map<const void*, std::string> first_name_;  ///< of a tensor that several names have
  std::unordered_map<Position, Role> roles_;
  std::vector<std::pair<size_t, Rewrite>> rewrites_;
  std::vector<Sum> sums_;
};

}  // namespace ulp::prune
