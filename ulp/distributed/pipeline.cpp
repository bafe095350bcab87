#include "ulp/distributed/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distributed/mail.h"
#include "ulp/distributed/pipeline_parameters.h"
#include "ulp/distributed/stage_program.h"

namespace ulp::distributed {

namespace {

constexpr const char* kWhere = "distributed.Pipeline";

using Tensors = std::vector<at::Tensor>;

/// The part of `whole` that is micro-batch i of n: the first ones have a sample more where it does not divide.
at::Tensor part_of(const at::Tensor& whole, int64_t dim, int64_t i, int64_t n) {
  if (dim < 0 || !whole.defined()) return whole;
  const int64_t size = whole.size(dim), least = size / n, more = size % n;
  return whole.narrow(dim, i * least + std::min(i, more), least + (i < more ? 1 : 0));
}

/// The program of the own stage of a plan that all ranks have.
StageProgram own_program(const graph::GraphModule& model, const StagePlan& plan, ProcessGroup& group,
                         PipelineParameters& parameters) {
  if (plan.stages.size() != static_cast<size_t>(group.size()))
    fail(kWhere, "expected a stage for each of ", group.size(), " processes, got ", plan.stages.size());
  std::vector<StageProgram> programs = stage_programs(model, plan);
  const StagePlan shared = share_stages(group, model.graph(), plan);
  bool same = true;
  for (size_t s = 0; s < plan.stages.size(); ++s) same &= shared.stages[s].first == plan.stages[s].first;
  if (all_reduce(group, same ? 0 : 1, ReduceOp::max) != 0)
    fail(kWhere, "expected the same plan on every rank (share_stages), got another one than rank 0's on ",
         same ? "another rank" : "this rank");
  parameters = PipelineParameters(programs, group);
  return std::move(programs[static_cast<size_t>(group.rank())]);
}

}  // namespace

void PipelineOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "schedule", .help = "Pipeline: in which order passes run"}, schedule);
  visitor(
      {.name = "micro_batches", .help = "Pipeline: parts that a batch is cut into", .min = 1, .max = 1 << 20},
      micro_batches);
}

void PipelineOptions::validate() const {
  check_limits(kWhere, *this);
}

struct Pipeline::State {
  /// A micro-batch between its forward and its backward.
  struct MicroBatch {
    Tensors received;  ///< leaves
    Tensors results;   ///< for the next stage; of the last stage the loss
  };

  State(const graph::GraphModule& model, const StagePlan& plan, std::shared_ptr<ProcessGroup> processes,
        const PipelineOptions& how)
      : options(how),
        group(std::move(processes)),
        batch_dims(model.graph().batch_dims),
        program(own_program(model, plan, *group, parameters)) {
    const Tensors all = program.module->parameters();
    const at::Device device = all.empty() ? at::Device(at::kCPU) : all.front().device();
    const int rank = group->rank();
    if (rank > 0) {
      from_before.emplace(*group, rank - 1, 0, device);
      to_before.emplace(*group, rank - 1, 1, device);
    }
    if (rank + 1 < group->size()) {
      to_next.emplace(*group, rank + 1, 0, device);
      from_next.emplace(*group, rank + 1, 1, device);
    }
  }

  bool is_last() const { return !to_next; }

  /// Throws ulp::Error unless all inputs have a batch of one size that can be cut; gives it.
  int64_t batch_of(const Tensors& inputs) const {
    if (inputs.size() != batch_dims.size())
      fail(kWhere, "expected ", batch_dims.size(), " inputs, got ", inputs.size());
    int64_t batch = -1;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (batch_dims[i] < 0) continue;
      if (inputs[i].dim() <= batch_dims[i])
        fail(kWhere, "expected a batch in dimension ", batch_dims[i], " of input ", i, ", got sizes ",
             inputs[i].sizes());
      const int64_t own = inputs[i].size(batch_dims[i]);
      if (batch >= 0 && own != batch)
        fail(kWhere, "expected inputs with one batch size, got ", batch, " and ", own);
      batch = own;
    }
    if (batch < options.micro_batches)
      fail(kWhere, "expected at least a sample for each of ", options.micro_batches,
           " micro-batches, got a batch of ", std::max<int64_t>(batch, 0));
    return batch;
  }

  /// The stage's results for micro-batch i. What is passed on goes through a node of its own, which gets the next
  /// stages' gradient before this stage's readers add theirs: the order of a single process.
  Tensors run(const Tensors& inputs, int64_t i, const Tensors& received) {
    Tensors values = received;
    for (size_t r = 0; r < values.size(); ++r)
      if (program.passed_on[r] && values[r].defined()) values[r] = values[r].view_as(values[r]);
    Tensors made;
    const auto value = [&](const StageValue& from) {
      if (from.origin == StageValue::Origin::received) return values[from.index];
      if (from.origin == StageValue::Origin::made) return made[from.index];
      return part_of(inputs[from.index], batch_dims[from.index], i, options.micro_batches);
    };
    Tensors reads, results;
    for (const StageValue& from : program.inputs) reads.push_back(value(from));
    made = program.module->forward_all(reads);
    for (const StageValue& from : program.results) results.push_back(value(from));
    return results;
  }

  Tensors receive() { return from_before ? from_before->receive(program.received) : Tensors(); }

  /// Of the oldest micro-batch under way.
  void backward() {
    MicroBatch micro = std::move(under_way.front());
    under_way.pop_front();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    if (is_last()) {
      micro.results[0].backward();
    } else {
      Tensors gradients = from_next->receive(micro.results.size()), roots, seeds;
      to_next->settle(to_next->under_way() - 1);  // it has arrived: here is its answer
      for (size_t r = 0; r < micro.results.size(); ++r) {
        if (!gradients[r].defined() || !micro.results[r].requires_grad()) continue;
        roots.push_back(micro.results[r]);
        seeds.push_back(gradients[r]);
      }
      if (!roots.empty()) torch::autograd::backward(roots, seeds);
    }
    if (!to_before) return;
    Tensors gradients;
    for (const at::Tensor& leaf : micro.received) gradients.push_back(leaf.defined() ? leaf.grad() : leaf);
    to_before->send(gradients);
    // The stage before has taken the gradient before the last one, or else it comes to it without us.
    to_before->settle(2);
  }

  PipelineOptions options;
  std::shared_ptr<ProcessGroup> group;
  std::vector<int64_t> batch_dims;
  PipelineParameters parameters;
  StageProgram program;
  std::optional<Mail> from_before, to_before, to_next, from_next;
  std::deque<MicroBatch> under_way;
};

Pipeline::Pipeline(const graph::GraphModule& model, const StagePlan& plan,
                   std::shared_ptr<ProcessGroup> group, const PipelineOptions& options) {
  options.validate();
  if (!group) fail(kWhere, "expected a process group, got none");
  state_ = std::make_unique<State>(model, plan, std::move(group), options);
}

Pipeline::~Pipeline() = default;

graph::GraphModule& Pipeline::module() {
  return *state_->program.module;
}

const ProcessGroup& Pipeline::group() const {
  return *state_->group;
}

double Pipeline::step(const Tensors& inputs, const at::Tensor& targets, const Loss& loss, double scale) {
  State& its = *state_;
  const int64_t batch = its.batch_of(inputs), parts = its.options.micro_batches;
  if (its.is_last() && (!targets.defined() || targets.dim() == 0 || targets.size(0) != batch))
    fail(kWhere, "expected targets for a batch of ", batch, ", got other ones");
  double mean = 0;
  const auto forward = [&](int64_t i) {
    State::MicroBatch micro{.received = its.receive(), .results = {}};
    micro.results = its.run(inputs, i, micro.received);
    if (its.is_last()) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      const at::Tensor own = part_of(targets, 0, i, parts);
      const double share = static_cast<double>(batch) / static_cast<double>(own.size(0));
      const at::Tensor value = loss(micro.results[0], own);
      mean += value.item<double>() / share;
      micro.results = {(scale == 1 ? value : value * scale) / share};
    } else {
      its.to_next->send(micro.results);
    }
    its.under_way.push_back(std::move(micro));
  };
  const auto shared = its.parameters.set_gradients_aside();
  for (const PipelinePass& pass :
       pipeline_passes(its.options.schedule, its.group->rank(), its.group->size(), parts)) {
    pass.forward ? forward(pass.micro_batch) : its.backward();
  }
  if (its.to_before) its.to_before->settle();
  its.parameters.add_gradients(shared, *its.group);
  const at::Tensor result = at::full({1}, mean, at::kDouble);
  its.group->broadcast(result, its.group->size() - 1).wait();
  return result.item<double>();
}

at::Tensor Pipeline::forward(const Tensors& inputs) {
  State& its = *state_;
  its.batch_of(inputs);
  const at::NoGradGuard no_grad;
  Tensors results;
  for (int64_t i = 0; i < its.options.micro_batches; ++i) {
    Tensors made = its.run(inputs, i, its.receive());
    if (its.is_last())
      results.push_back(made[0]);
    else
      its.to_next->send(made);
  }
  if (!its.is_last()) {
    its.to_next->settle();
    return {};
  }
  return at::cat(results);
}

void Pipeline::gather(torch::nn::Module* whole) {
  state_->parameters.gather(*state_->program.module, whole, *state_->group);
}

std::vector<at::Tensor> Pipeline::own_parameters() const {
  return state_->parameters.own();
}

}  // namespace ulp::distributed
