// Runs a graph under a plan.
#pragma once

#include <functional>
#include <memory>

#include "ulp/graph/executor.h"
#include "ulp/memory/checkpoint/layout.h"

namespace ulp::memory {

/// A graph without grad runs as without a plan.
class CheckpointExecutor final : public graph::Executor {
 public:
  /// Throws ulp::Error for options out of their limits.
  explicit CheckpointExecutor(CheckpointPlan plan);
  ~CheckpointExecutor() override;
  void prepare(std::shared_ptr<const graph::Graph> graph,
               std::shared_ptr<const graph::Program> program) override;
  c10::IValue run(const std::vector<at::Tensor>& inputs, bool training) override;

 private:
  CheckpointPlan plan_;
  std::shared_ptr<Packer> packer_;
  std::shared_ptr<Layout> layout_;
};

}  // namespace ulp::memory
