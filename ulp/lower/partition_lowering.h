// Which nodes of a graph run in LibTorch because the engine has no step for them, and the plans of the rest.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/graph/extract.h"
#include "ulp/lower/lowerer.h"
#include "ulp/lower/partition.h"

namespace ulp::lowering {

/// Nodes that run in LibTorch, with the reason.
using Foreign = std::unordered_map<const graph::Node*, std::string>;

/// Takes out what is refused, until the engine has all that is left.
class PartitionLowering {
 public:
  /// Works on a prepared graph, which must outlive it.
  PartitionLowering(const graph::Graph& graph, const LowerOptions& options);

  const std::vector<Cut>& cuts() const { return cuts_; }
  /// Of a cut that is not foreign.
  const runtime::Plan& plan(size_t cut) const { return plans_[cut]; }
  const Foreign& foreign() const { return foreign_; }

 private:
  runtime::Plan lower_cut(const Cut& cut);
  void take_out(const graph::Extract& part, const Refusal& refusal);
  void add(const graph::Extract& part, const graph::Node* node, const std::string& reason);

  const graph::Graph& graph_;
  const LowerOptions& options_;
  Foreign foreign_;
  std::vector<Cut> cuts_;
  std::vector<runtime::Plan> plans_;
  bool refused_ = false;  ///< in this round
};

}  // namespace ulp::lowering
