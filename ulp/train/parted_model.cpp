#include "ulp/train/parted_model.h"

#include <algorithm>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/learning.h"

namespace ulp::train {

namespace {

constexpr const char* kWhere = "train.parted_task";

/// This process's stage. `example` is a batch.
std::unique_ptr<distributed::Pipeline> make_pipeline(const graph::GraphModule& captured,
                                                     const std::shared_ptr<distributed::ProcessGroup>& group,
                                                     const distributed::PipelineOptions& options,
                                                     const amp::Precision& precision,
                                                     const at::Tensor& example, graph::PassReport* report) {
  const int64_t samples = std::max<int64_t>(1, example.size(0) / options.micro_batches);
  distributed::StagePlan plan;
  {
    const auto guard = amp::autocast_for(precision, c10::kCPU);
    plan = distributed::measured_stages(*group, captured, {example.narrow(0, 0, samples)});
  }
  if (report != nullptr) *report = {"pipeline", distributed::describe_stages(plan), {}};
  return std::make_unique<distributed::Pipeline>(captured, plan, group, options);
}

}  // namespace

void ParallelOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "parallel", .help = "Several processes: what they share out"}, parallel);
  pipeline.visit_fields(visitor);
}

void ParallelOptions::validate() const {
  pipeline.validate();
}

std::vector<at::Tensor> PartedModel::own_parameters() const {
  return tensor ? tensor->own_parameters() : pipeline->own_parameters();
}

void PartedModel::gather() const {
  if (tensor)
    tensor->gather(tensor->group().rank() == 0 ? whole.get() : nullptr);
  else
    pipeline->gather(pipeline->group().rank() == 0 ? whole.get() : nullptr);
}

Task parted_task(Task task, const ParallelOptions& options, const amp::Precision& precision,
                 graph::PassReport* report) {
  if (options.parallel == Parallel::data) return task;
  if (!task.group || task.group->size() < 2)
    fail(kWhere, "expected several processes for parallel ", word_of(options.parallel), ", got one");
  options.validate();
  auto parted = std::make_shared<PartedModel>();
  parted->whole = task.model;
  const auto group = task.group;
  const at::Tensor example = example_batch(*task.batches).inputs;
  task = captured_task(std::move(task), kWhere, [&](const auto& captured) {
    if (options.parallel == Parallel::pipeline) {
      parted->pipeline = make_pipeline(*captured, group, options.pipeline, precision, example, report);
      return parted->pipeline->shared_module();
    }
    parted->tensor = std::make_unique<distributed::TensorParallel>(
        captured, group, distributed::TensorParallelOptions{}, report);
    return parted->tensor->shared_module();
  });
  task.parted = std::move(parted);
  return task;
}

}  // namespace ulp::train
