// Pipeline parallel training: each process runs a stage of a captured model, and micro-batches go through them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distributed/model_parts.h"
#include "ulp/distributed/pipeline_schedule.h"
#include "ulp/distributed/process_group.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/graph/graph_module.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distributed {

/// How a step goes through the stages.
struct ULP_API PipelineOptions {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int64_t micro_batches = 4;  ///< a batch is cut into so many parts

  void visit_fields(FieldVisitor& visitor);
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// The stage of a model that this process runs, stage r on rank r.
///
///   auto captured = ulp::capture(model, {x});
///   auto plan = distributed::measured_stages(*group, *captured, {micro_batch});
///   distributed::Pipeline pipeline(*captured, plan, group);
///   torch::optim::AdamW optimizer(pipeline.module().parameters(), 1e-3);   // of this stage
///   for (...) { double loss = pipeline.step({x}, y, torch::mse_loss); optimizer.step(); optimizer.zero_grad(); }
///   pipeline.gather(rank == 0 ? captured.get() : nullptr);                  // the weights of all stages
///
/// Gradients are those of one process that accumulates over the micro-batches, bit for bit: each stage adds them up in
/// the order of the micro-batches. Parameters that several stages read (tied embeddings) get the sum of the stages'
/// gradients in all of them, which is the same up to the order of summation. Every process draws random numbers of its
/// own: dropout differs from a single process's. Batch norm sees a micro-batch at a time.
class ULP_API Pipeline {
 public:
  /// A mean over the samples of a micro-batch.
  using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

  /// All ranks call it with the same model and the same plan, and may let go of the model then: parameters of the own
  /// stage are shared with it. Those of several stages become the first one's. Throws ulp::Error for another number of
  /// stages than of ranks, plans that differ, and graphs with free dimensions or another result than one tensor.
  Pipeline(const graph::GraphModule& model, const StagePlan& plan, std::shared_ptr<ProcessGroup> group,
           const PipelineOptions& options = {});
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The stage: its parameters keep the names that they have in the model. train(), eval() and to() are the caller's.
  graph::GraphModule& module() { return *shared_module(); }
  const std::shared_ptr<graph::GraphModule>& shared_module() const;
  const ProcessGroup& group() const;

  /// Forward and backward of a batch, which every rank gives whole; gradients of the mean loss times `scale` are added
  /// to those that are there. Gives the mean loss on every rank. The stage runs in the caller's autocast, `loss` (on the
  /// last rank alone) and backward without. Throws ulp::Error for a batch with fewer samples than micro-batches, and
  /// naming the rank when another process ended.
  double step(const std::vector<at::Tensor>& inputs, const at::Tensor& targets, const Loss& loss,
              double scale = 1);

  /// The model's result on the last rank, undefined on the others; without gradients.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);

  /// Copies parameters and buffers of all stages into `whole` on rank 0, by their names; null on the others.
  void gather(torch::nn::Module* whole) const { parts().gather(whole); }
  /// Gathers and scatters weights and optimizer states, for checkpoints.
  const ModelParts& parts() const;

  /// Parameters of the stage that no stage before it has: over all ranks each parameter of the model once.
  std::vector<at::Tensor> own_parameters() const;
  /// Names of the parameters that several stages have, the same on every rank.
  const std::vector<std::string>& shared_parameters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distributed
