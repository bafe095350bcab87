#include "ulp/distributed/pipeline_stage.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

/// The program of the own stage of a plan that all ranks have.
StageProgram own_program(const graph::GraphModule& model, const StagePlan& plan, ProcessGroup& group,
                         PipelineParameters& parameters) {
  if (plan.stages.size() != static_cast<size_t>(group.size()))
    fail(kPipelineWhere, "expected a stage for each of ", group.size(), " processes, got ",
         plan.stages.size());
  std::vector<StageProgram> programs = stage_programs(model, plan);
  const StagePlan shared = share_stages(group, model.graph(), plan);
  bool same = true;
  for (size_t s = 0; s < plan.stages.size(); ++s) same &= shared.stages[s].first == plan.stages[s].first;
  if (all_reduce(group, same ? 0 : 1, ReduceOp::max) != 0)
    fail(kPipelineWhere,
         "expected the same plan on every rank (share_stages), got another one than rank 0's on ",
         same ? "another rank" : "this rank");
  parameters = PipelineParameters(programs, group);
  return std::move(programs[static_cast<size_t>(group.rank())]);
}

}  // namespace

at::Tensor micro_batch_of(const at::Tensor& whole, int64_t dim, int64_t i, int64_t n) {
  if (dim < 0 || !whole.defined()) return whole;
  const int64_t size = whole.size(dim), least = size / n, more = size % n;
  return whole.narrow(dim, i * least + std::min(i, more), least + (i < more ? 1 : 0));
}

PipelineStage::PipelineStage(const graph::GraphModule& model, const StagePlan& plan,
                             std::shared_ptr<ProcessGroup> processes, const PipelineOptions& how)
    : options(how),
      group(std::move(processes)),
      batch_dims_(model.graph().batch_dims),
      program_(own_program(model, plan, *group, parameters)) {
  const Tensors all = program_.module->parameters();
  const at::Device device = all.empty() ? at::Device(at::kCPU) : all.front().device();
  const int rank = group->rank();
  if (rank > 0) {
    from_before_.emplace(*group, rank - 1, 0, device);
    to_before_.emplace(*group, rank - 1, 1, device);
  }
  if (rank + 1 < group->size()) {
    to_next_.emplace(*group, rank + 1, 0, device);
    from_next_.emplace(*group, rank + 1, 1, device);
  }
}

int64_t PipelineStage::batch_of(const Tensors& inputs) const {
  if (inputs.size() != batch_dims_.size())
    fail(kPipelineWhere, "expected ", batch_dims_.size(), " inputs, got ", inputs.size());
  int64_t batch = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (batch_dims_[i] < 0) continue;
    if (inputs[i].dim() <= batch_dims_[i])
      fail(kPipelineWhere, "expected a batch in dimension ", batch_dims_[i], " of input ", i, ", got sizes ",
           inputs[i].sizes());
    const int64_t own = inputs[i].size(batch_dims_[i]);
    if (batch >= 0 && own != batch)
      fail(kPipelineWhere, "expected inputs with one batch size, got ", batch, " and ", own);
    batch = own;
  }
  if (batch < options.micro_batches)
    fail(kPipelineWhere, "expected at least a sample for each of ", options.micro_batches,
         " micro-batches, got a batch of ", std::max<int64_t>(batch, 0));
  return batch;
}

/// What is passed on goes through a node of its own, which gets the next stages' gradient before this stage's readers add
/// theirs: the order of a single process.
Tensors PipelineStage::run(const Tensors& inputs, int64_t i, Tensors values) {
  for (size_t r = 0; r < values.size(); ++r)
    if (program_.passed_on[r] && values[r].defined()) values[r] = values[r].view_as(values[r]);
  Tensors made;
  const auto value = [&](const StageValue& from) {
    if (from.origin == StageValue::Origin::received) return values[from.index];
    if (from.origin == StageValue::Origin::made) return made[from.index];
    return micro_batch_of(inputs[from.index], batch_dims_[from.index], i, options.micro_batches);
  };
  Tensors reads, results;
  for (const StageValue& from : program_.inputs) reads.push_back(value(from));
  made = program_.module->forward_all(reads);
  for (const StageValue& from : program_.results) results.push_back(value(from));
  return results;
}

PipelineStage::Forward PipelineStage::forward(const Tensors& inputs, int64_t i) {
  Forward micro;
  if (from_before_) micro.received = from_before_->receive(program_.received);
  micro.results = run(inputs, i, micro.received);
  return micro;
}

void PipelineStage::backward() {
  Forward micro = std::move(under_way_.front());
  under_way_.pop_front();
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (is_last()) {
    micro.results[0].backward();
  } else {
    Tensors gradients = from_next_->receive(micro.results.size()), roots, seeds;
    to_next_->settle(to_next_->under_way() - 1);  // it has arrived: here is its answer
    for (size_t r = 0; r < micro.results.size(); ++r) {
      if (!gradients[r].defined() || !micro.results[r].requires_grad()) continue;
      roots.push_back(micro.results[r]);
      seeds.push_back(gradients[r]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, seeds);
  }
  if (!to_before_) return;
  Tensors gradients;
  for (const at::Tensor& leaf : micro.received) gradients.push_back(leaf.defined() ? leaf.grad() : leaf);
  to_before_->send(gradients);
  // The stage before has taken the gradient before the last one, or else it comes to it without us.
  to_before_->settle(2);
}

void PipelineStage::settle() {
  if (to_before_) to_before_->settle();
  if (to_next_) to_next_->settle();
  under_way_.clear();
}

}  // namespace ulp::distributed
