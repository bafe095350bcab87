// What removed channels hold in a network whose units' rows are zeroed and whose norms are as they are.
// Internal to the room.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ulp/prune/structured/rules/rules.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// Whether the op is one of a family of rules.
bool in_family(std::span<const Rule> family, const graph::Node& node);
/// A convolution that is not transposed, or one that is.
bool is_conv(const graph::Node& node);
bool is_transposed_conv(const graph::Node& node);
/// A flag of a call ("training", "train") that is, or may be, set in eval mode.
bool set_in_eval(const graph::Argument& flag);

/// Follows the removed positions of every dimension of every value through a graph, in eval mode. All that it
/// reads must outlive it.
class RemovedConstants {
 public:
  RemovedConstants(const graph::Graph& graph, const Tracker& tracker, const Survivors& left);

  /// One number for each position of the dimension, which its slice holds everywhere; 0 for positions that
  /// stay. In double, on the CPU. Undefined where they are not one number each, or not known.
  at::Tensor along(const graph::Value* value, size_t dim) const;
  /// Some positions of the dimension are removed, and all of these hold zeros.
  bool zero(const graph::Argument& arg, size_t dim) const;

  const Axis& axis(const graph::Value* value, size_t dim) const {
    return tracker_.layout(value).dims.at(dim);
  }
  size_t rank(const graph::Value* value) const { return tracker_.layout(value).dims.size(); }
  bool cut(const graph::Value* value, size_t dim) const { return !left_.whole(axis(value, dim)); }
  bool keeps(Position position) const { return left_.keeps(position); }

 private:
  void keep(const graph::Value* value, size_t dim, const at::Tensor& numbers);
  at::Tensor computed(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor zeros(const graph::Value* value, size_t dim) const;
  /// As along(), of the dimension at this distance from the end; undefined where it has not `size` positions.
  at::Tensor from_end(const graph::Argument& arg, size_t distance, size_t size) const;
  bool zero_from_end(const graph::Argument& arg, size_t distance, size_t size) const;

  // removed_zeros.cpp
  at::Tensor attribute(const graph::Node& node, size_t dim) const;
  at::Tensor layer(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor product(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor sequence(const graph::Node& node, const graph::Value* out, size_t dim) const;

  at::Tensor batch_norm(const graph::Node& node) const;
  at::Tensor joined(const graph::Node& node, size_t dim) const;
  at::Tensor elementwise(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor operand(const graph::Argument& arg, size_t distance, size_t size) const;
  at::Tensor reduced(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor moved(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor viewed(const graph::Node& node, const graph::Value* out, size_t dim) const;
  at::Tensor repeated(const graph::Node& node, const graph::Value* out, size_t dim) const;

  const graph::Graph& graph_;
  const Tracker& tracker_;
  const Survivors& left_;
  std::map<std::pair<const graph::Value*, size_t>, at::Tensor> numbers_;  ///< of dimensions that are cut
};

}  // namespace ulp::prune
