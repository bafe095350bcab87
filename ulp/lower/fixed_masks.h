// Masks of attention scores that follow from sizes and constants alone, and what they do to the scores of
// later keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ulp/graph/graph.h"
#include "ulp/graph/mutated_buffers.h"

namespace ulp::lowering {

/// At or below this a score in f32 has no weight beside one that is open: scores as low as it are whole
/// numbers of no meaning.
inline constexpr double kHiddenScore = -1e7;

/// How a mask [queries, keys] treats later keys (key > query), and those before a window, beside the others.
struct Triangle {
  int64_t size = 0;
  int64_t window = 0;  ///< above 0: keys before the last so many up to the query's own count as later ones
  bool hides = false;  ///< truth at later keys and nowhere else
  bool shows = false;  ///< truth everywhere else
  bool keeps = false;  ///< as a factor: 1 where `shows` is true, 0 at later keys
  std::optional<double> adds =
      {};  ///< 0 but at later keys, where this is the largest number; -inf if there are none
  std::optional<double> takes = {};  ///< the same of the mask's negative
};

/// Reads masks of a graph. Calls may be added to the graph and changed meanwhile, but not taken out.
class FixedMasks {
 public:
  explicit FixedMasks(const graph::Graph& graph);

  /// The number that an argument is: a literal, or a tensor of equal numbers.
  std::optional<double> number(const graph::Argument& argument);
  /// What a square mask, which is the same for all samples and heads, does; nothing of any other value.
  std::optional<Triangle> triangle(const graph::Argument& argument);
  /// True for a value that follows from sizes and constants alone.
  bool is_fixed(const graph::Argument& argument) const;
  /// True where nobody but `reader` reads the numbers of a value, though others may read its sizes.
  bool read_by_one(const graph::Value* value, const graph::Node& reader) const;
  /// True where the node reads what the graph itself writes.
  bool reads_state(const graph::Node& node) const { return written_.touches(node); }

 private:
  at::Tensor matrix(const graph::Argument& argument);

  const graph::Graph& graph_;
  graph::WrittenState written_;
  std::unordered_set<const graph::Value*> fixed_;
  std::unordered_map<const graph::Value*, at::Tensor> matrices_;
  std::unordered_map<const graph::Value*, std::optional<Triangle>> triangles_;
};

}  // namespace ulp::lowering
