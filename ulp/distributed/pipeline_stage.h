// What one process of a pipeline does with micro-batches; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ulp/distributed/p2p.h"
#include "ulp/distributed/pipeline.h"
#include "ulp/distributed/pipeline_parameters.h"
#include "ulp/distributed/stage_program.h"

namespace ulp::distributed {

/// The function or class that errors name.
inline constexpr const char* kPipelineWhere = "distributed.Pipeline";

using Tensors = std::vector<at::Tensor>;

/// The part of `whole` that is micro-batch i of n along `dim`: the first ones have a sample more where it does not
/// divide. All of it for dim -1.
at::Tensor micro_batch_of(const at::Tensor& whole, int64_t dim, int64_t i, int64_t n);

class PipelineStage {
 public:
  PipelineStage(const graph::GraphModule& model, const StagePlan& plan,
                std::shared_ptr<ProcessGroup> processes, const PipelineOptions& how);

  bool is_last() const { return !to_next_; }
  /// Throws ulp::Error unless all inputs have a batch of one size that can be cut; gives it.
  int64_t batch_of(const Tensors& inputs) const;
  /// Receives what the stage before sends for micro-batch i and runs the stage on it.
  struct Forward {
    Tensors received;  ///< leaves
    Tensors results;   ///< for the next stage, or the model's result
  };
  Forward forward(const Tensors& inputs, int64_t i);
  /// Sends results to the next stage.
  void send_on(const Tensors& results) { to_next_->send(results); }
  /// Keeps a micro-batch until its backward; on the last stage with its loss in the place of the results.
  void keep(Forward micro_batch) { under_way_.push_back(std::move(micro_batch)); }
  /// Backward of the oldest micro-batch that is kept.
  void backward();
  /// Waits until all that was sent has arrived. Nothing is kept then.
  void settle();

  const PipelineOptions options;
  const std::shared_ptr<ProcessGroup> group;
  PipelineParameters parameters;
  const std::shared_ptr<graph::GraphModule>& module() const { return program_.module; }

 private:
  Tensors run(const Tensors& inputs, int64_t i, Tensors values);

  std::vector<int64_t> batch_dims_;
  StageProgram program_;
  std::optional<P2pChannel> from_before_, to_before_, to_next_, from_next_;
  std::deque<Forward> under_way_;
};

}  // namespace ulp::distributed
