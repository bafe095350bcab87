#include "ulp/distributed/pipeline.h"

#include <ATen/ATen.h>

#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distributed/pipeline_stage.h"

namespace ulp::distributed {

void PipelineOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "schedule", .help = "Pipeline: in which order passes run", .flag = "pipeline-schedule"},
          schedule);
  visitor(
      {.name = "micro_batches", .help = "Pipeline: parts that a batch is cut into", .min = 1, .max = 1 << 20},
      micro_batches);
}

void PipelineOptions::validate() const {
  check_limits(kPipelineWhere, *this);
}

struct Pipeline::State {
  PipelineStage stage;
  ModelParts parts{stage.group, stage.module(), stage.parameters.names()};
};

Pipeline::Pipeline(const graph::GraphModule& model, const StagePlan& plan,
                   std::shared_ptr<ProcessGroup> group, const PipelineOptions& options) {
  options.validate();
  if (!group) fail(kPipelineWhere, "expected a process group, got none");
  state_ = std::unique_ptr<State>(new State{PipelineStage(model, plan, std::move(group), options)});
}

Pipeline::~Pipeline() = default;

const std::shared_ptr<graph::GraphModule>& Pipeline::shared_module() const {
  return state_->stage.module();
}

const ProcessGroup& Pipeline::group() const {
  return *state_->stage.group;
}

double Pipeline::step(const std::vector<at::Tensor>& inputs, const at::Tensor& targets, const Loss& loss,
                      double scale) {
  PipelineStage& stage = state_->stage;
  const int64_t batch = stage.batch_of(inputs), parts = stage.options.micro_batches;
  if (stage.is_last() && (!targets.defined() || targets.dim() == 0 || targets.size(0) != batch))
    fail(kPipelineWhere, "expected targets for a batch of ", batch, ", got other ones");
  double mean = 0;
  const auto forward = [&](int64_t i) {
    PipelineStage::Forward micro = stage.forward(inputs, i);
    if (stage.is_last()) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      const at::Tensor own = micro_batch_of(targets, 0, i, parts);
      const double share = static_cast<double>(batch) / static_cast<double>(own.size(0));
      const at::Tensor value = loss(micro.results[0], own);
      mean += value.item<double>() / share;
      micro.results = {(scale == 1 ? value : value * scale) / share};
    } else {
      stage.send_on(micro.results);
    }
    stage.keep(std::move(micro));
  };
  const auto aside = stage.parameters.set_gradients_aside();
  ProcessGroup& group = *stage.group;
  for (const PipelinePass& pass : pipeline_passes(stage.options.schedule, group.rank(), group.size(), parts))
    pass.forward ? forward(pass.micro_batch) : stage.backward();
  stage.settle();
  stage.parameters.add_gradients(aside, group);
  const at::Tensor result = at::full({1}, mean, at::kDouble);
  group.broadcast(result, group.size() - 1).wait();
  return result.item<double>();
}

at::Tensor Pipeline::forward(const std::vector<at::Tensor>& inputs) {
  PipelineStage& stage = state_->stage;
  stage.batch_of(inputs);
  const at::NoGradGuard no_grad;
  Tensors results;
  for (int64_t i = 0; i < stage.options.micro_batches; ++i) {
    const Tensors made = stage.forward(inputs, i).results;
    if (stage.is_last())
      results.push_back(made[0]);
    else
      stage.send_on(made);
  }
  stage.settle();
  return stage.is_last() ? at::cat(results) : at::Tensor();
}

const ModelParts& Pipeline::parts() const {
  return state_->parts;
}

const std::vector<std::string>& Pipeline::shared_parameters() const {
  return state_->stage.parameters.shared_names();
}

std::vector<at::Tensor> Pipeline::own_parameters() const {
  return state_->stage.parameters.own();
}

}  // namespace ulp::distributed
