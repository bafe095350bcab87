// Weights and optimizer states of a model of which each rank has a part: gathered on rank 0, and taken from a whole one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/distributed/process_group.h"
#include "ulp/distributed/split.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distributed {

/// Knows which rank has which part of a model: TensorParallel and Pipeline make it. All ranks call the same
/// functions in the same order.
class ULP_API ModelParts {
 public:
  /// `own` is the module of this rank; its parameters and buffers have the names that they have in the whole model.
  /// `taken`: for each rank the names of what is gathered from it: each tensor once, split ones from every rank.
  ModelParts(std::shared_ptr<ProcessGroup> group, std::shared_ptr<graph::GraphModule> own,
             std::vector<std::vector<std::string>> taken, std::vector<NamedSplit> splits = {});

  const ProcessGroup& group() const { return *group_; }

  /// Copies parameters and buffers into `whole` on rank 0, by their names, split ones from all ranks; null on the others.
  /// Throws ulp::Error for a model without one of them.
  void gather(torch::nn::Module* whole) const;
  /// Takes this rank's parameters and buffers from a whole model, which every rank has. Throws as gather() does.
  void scatter(const torch::nn::Module& whole) const;

  /// Gathers an optimizer's state: `state` is one of parameters of `whole`, `own` one of parameters of the
  /// rank's module. On ranks other than 0 `whole` and `state` are null. Throws ulp::Error for moments in
  /// blocks (int8, int4) of parameters that are split: the blocks of a part are not those of the whole.
  void gather(const amp::FusedOptimizer& own, torch::nn::Module* whole, amp::FusedOptimizer* state) const;
  /// Options stay as they are.
  void scatter(const torch::nn::Module& whole, const amp::FusedOptimizer& state,
               amp::FusedOptimizer& own) const;

 private:
  using Message = std::vector<at::Tensor>;

  const Split* split_of(const std::string& name) const;
  void collect(size_t tensors, FunctionRef<Message(const std::string& name)> tell,
               FunctionRef<void(const std::string& name, int rank, const Message& letter)> take) const;

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<graph::GraphModule> own_;
  std::vector<std::vector<std::string>> taken_;
  std::vector<NamedSplit> splits_;
};

}  // namespace ulp::distributed
