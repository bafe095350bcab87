#include "ulp/train/parted_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/parse_json.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/io/checkpoint.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/learning.h"

namespace ulp::train {

namespace {

constexpr const char* kWhere = "train.parted_task";

/// The stages of the run that left the checkpoint; none where it had none.
std::vector<int64_t> stages_in(const std::filesystem::path& checkpoint) {
  if (checkpoint.empty()) return {};
  const auto config = parse_json_or_discarded(io::read_checkpoint_info(checkpoint).config);
  const auto found = config.is_object() ? config.find(kStagesEntry) : config.end();
  std::vector<int64_t> numbers;
  if (found == config.end() || !found->is_array()) return numbers;
  for (const auto& number : *found)
    numbers.push_back(number.is_number_integer() ? number.get<int64_t>() : -1);
  return numbers;
}

/// Rank 0's plan on all ranks.
distributed::StagePlan choose_stages(const graph::GraphModule& captured, distributed::ProcessGroup& group,
                                     const ParallelOptions& options, const amp::Precision& precision,
                                     const at::Tensor& example, const std::filesystem::path& resumed) {
  auto plan = distributed::stages_of_numbers(captured.graph(), stages_in(resumed));
  const bool fits = plan.stages.size() == static_cast<size_t>(group.size());
  if (fits) return distributed::share_stages(group, captured.graph(), plan);
  const int64_t samples = std::max<int64_t>(1, example.size(0) / options.pipeline.micro_batches);
  const auto guard = amp::autocast_for(precision, c10::kCPU);
  return distributed::measured_stages(group, captured, {example.narrow(0, 0, samples)});
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

const distributed::ModelParts& PartedModel::parts() const {
  return tensor ? tensor->parts() : pipeline->parts();
}

torch::nn::Module* PartedModel::root() const {
  return parts().group().rank() == 0 ? whole.get() : nullptr;
}

Task parted_task(Task task, const ParallelOptions& options, const amp::Precision& precision,
                 graph::PassReport* report, const std::filesystem::path& resumed) {
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
      const auto plan = choose_stages(*captured, *group, options, precision, example, resumed);
      if (report != nullptr) *report = {"pipeline", distributed::describe_stages(plan), {}};
      parted->stages = nlohmann::json(distributed::stage_numbers(captured->graph(), plan)).dump();
      parted->pipeline = std::make_unique<distributed::Pipeline>(*captured, plan, group, options.pipeline);
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
