// Which values of a graph a training step computes again in the backward pass instead of keeping them, and
// the ways to choose them: by hand, every k calls, by the square root, by a budget of bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"
#include "ulp/memory/saved/saved_options.h"

namespace ulp::memory {

/// Consecutive calls in order of execution. Their values are freed in the forward pass and computed again,
/// from what the segment reads, when the backward pass comes to the segment.
struct Segment {
  const graph::Node* first = nullptr;
  const graph::Node* last = nullptr;  ///< is in it
  /// Results of its calls that stay in memory all the same.
  std::vector<const graph::Value*> kept = {};
  /// Its calls that keep what their backward reads beside arguments, results and parameters: the mask of a
  /// dropout, the statistics of a norm.
  std::vector<const graph::Node*> kept_inner = {};
};

/// The segments that are recomputed. Segments do not overlap; one may lie inside another: its values are then
/// computed from those of the outer one.
struct CheckpointPlan {
  std::vector<Segment> segments;
  /// How all that stays for the backward pass is kept, in segments and outside of them.
  SavedOptions saved = {};
  /// Formats of single values, in the place of saved.format.
  std::unordered_map<const graph::Value*, SavedFormat> formats = {};
  /// The next stochastic rounding draws a function of saved.seed and this number, which counts on.
  /// Who sets it to
  /// a number of the step's own before each step makes steps that depend on nothing before them. Null: nobody
  /// does.
  std::shared_ptr<std::atomic<uint64_t>> draws = {};
};

/// The cost of a call in one training step.
struct NodeCost {
  double seconds = 0;  ///< of its forward
  /// Until it has what `inner_bytes` counts; 0 where that is made before the work begins (a cast of an
  /// argument).
  double inner_seconds = 0;
  int64_t inner_bytes = 0;  ///< what its backward keeps beside the values of the graph and parameters
  /// Its arguments and results that its backward reads.
  std::vector<const graph::Value*> saved = {};
};

/// The cost of a training step, call by call and value by value. Calls and values without an entry cost
/// nothing.
struct Costs {
  std::unordered_map<const graph::Node*, NodeCost> nodes;
  /// Bytes of each result of a call, 0 where it is a view of another one (its bytes are counted there).
  std::unordered_map<const graph::Value*, int64_t> bytes;
  /// The value whose memory a view shares.
  std::unordered_map<const graph::Value*, const graph::Value*> view_of;
  /// Bytes that a step needs at its peak beside what is counted here: work space of backward formulas. The
  /// measured peak of a step without a plan less peak_without_plan().
  int64_t margin = 0;
};

/// Segments of `k` calls. The calls behind the last whole segment keep their values: their backward comes at
/// once. Throws ulp::Error for k < 1.
ULP_API CheckpointPlan plan_every(const graph::Graph& graph, int64_t k);

/// About sqrt(n) segments of about sqrt(n) of the graph's n calls (Chen et al., arXiv:1604.06174), cut where
/// the fewest numbers cross. Keeps values in the order of sqrt(n) instead of n for less than one more
/// forward.
ULP_API CheckpointPlan plan_sqrt(const graph::Graph& graph);

/// A segment for each path of a module ("encoder.0"): from the first to the last call of that module and
/// those in it. Throws ulp::Error for a path without calls, or where two overlap and neither is in the other.
ULP_API CheckpointPlan plan_modules(const graph::Graph& graph, const std::vector<std::string>& paths);

/// The plan that takes the least time to compute values again among those whose values fit in `bytes` at
/// every moment of forward and backward: activations and their gradients, without parameters, their gradients
/// and the optimizer. A dynamic program over cut points; inside a segment a minimum cut tells what is kept.
/// Throws ulp::Error naming the smallest budget it found a plan for when `bytes` is less.
ULP_API CheckpointPlan plan_for_budget(const graph::Graph& graph, const Costs& costs, int64_t bytes);

/// The bytes of activations and their gradients at the peak of a step that keeps everything, by the same
/// count.
ULP_API int64_t peak_without_plan(const graph::Graph& graph, const Costs& costs);

/// Throws ulp::Error naming the call unless the segments are calls of this graph in order, nested or apart,
/// and what they keep is theirs.
ULP_API void check_plan(const graph::Graph& graph, const CheckpointPlan& plan);

}  // namespace ulp::memory
