// Turns the same argument seen in several runs into one Argument of a graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulp/graph/capture/align.h"

namespace ulp::graph {

/// An argument (or the result) as one run saw it.
struct Sighting {
  const c10::IValue* value = nullptr;
  const std::vector<Candidates>* tensors = nullptr;  ///< of the whole call
  const RunSizes* sizes = nullptr;
  bool training = false;
};

class Merger {
 public:
  /// `pick` gives the value for the candidates that each run offers for one tensor; `both_modes`: the last run is in
  /// train mode and the others are not.
  using Pick =
      std::function<Value*(const std::vector<Candidates>&, bool both_modes, const std::string& where)>;
  /// `grid`: sizes among which those of the runs in one mode are.
  Merger(SizeGrid grid, Pick pick) : grid_(std::move(grid)), pick_(std::move(pick)) {}

  /// Merges an argument; `leaf` counts the tensors of the call and is moved on. Throws ulp::Error naming
  /// `where` for what differs and neither follows the sizes, nor is the training flag, nor a number that
  /// follows the mode.
  Argument merge(const std::vector<Sighting>& seen, size_t& leaf, const std::string& where) const;

 private:
  Argument merge_tensor(const std::vector<Sighting>& seen, size_t& leaf, const std::string& where) const;
  Argument merge_items(const std::vector<Sighting>& seen, size_t& leaf, const std::string& where) const;

  Argument merge_whole(const std::vector<Sighting>& seen, const std::string& where) const;

  SizeGrid grid_;
  Pick pick_;
};

/// Whether two results have tensors at the same places, in lists, tuples and names of the same length.
bool same_form(const c10::IValue& a, const c10::IValue& b);

/// Whether two values that are no tensors are the same; NaN is NaN.
bool same_literal(const c10::IValue& a, const c10::IValue& b);

/// The expression that gives the integers seen at these sizes, the batch first, if there is one: linear in the batch and
/// of the grid's degrees in the free dimensions. Nothing where a point of the grid is missing and the integers differ.
std::optional<SizeExpr> fit(const SizeGrid& grid, const std::vector<std::vector<int64_t>>& sizes,
                            const std::vector<int64_t>& values);

}  // namespace ulp::graph
