#include "ulp/train/sharded_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/parse_json.h"
#include "ulp/distributed/gradient_total.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/distributed/tensor_parallel.h"
#include "ulp/io/checkpoint.h"
#include "ulp/quant/recipe.h"
#include "ulp/train/captured_task.h"

namespace ulp::train {

namespace {

constexpr const char* kPartedTaskWhere = "train.sharded_task";

int64_t limit_of(const ParallelOptions& options) {
  return options.stage_memory ? options.stage_memory->bytes : 0;
}

/// The stages of the run that left the checkpoint, if it had some within the same limit of memory.
std::vector<int64_t> stages_in(const std::filesystem::path& checkpoint, const ParallelOptions& options) {
  if (checkpoint.empty()) return {};
  const auto config = parse_json_or_discarded(io::read_checkpoint_info(checkpoint).config);
  try {
    const nlohmann::json& stages = config.at(kStagesEntry);
    if (stages.at("memory") != limit_of(options)) return {};
    return stages.at("begin").get<std::vector<int64_t>>();
  } catch (const nlohmann::json::exception&) {  // it had none
    return {};
  }
}

/// Bytes of the optimizer for each byte of fp32 parameters, beside these and their gradients. Narrow
/// parameters are no other case: they and their gradients take half as much, and an fp32 master takes the
/// other half.
double optimizer_bytes(const TrainOptions& training) {
  const bool sgd = training.optimizer == Optimizer::sgd;
  const double moments = sgd ? (training.momentum != 0 ? 1 : 0) : 2;
  // Moments of 8 and 4 bits are counted as bf16: small parameters and fp32_moments keep wide ones.
  const double width = training.moments == amp::MomentFormat::fp32 ? 1 : 0.5;
  return moments * width;
}

/// Rank 0's plan on all ranks.
distributed::StagePlan choose_stages(const graph::GraphModule& captured, distributed::ProcessGroup& group,
                                     const ParallelOptions& options, const TrainOptions& training,
                                     const at::Tensor& example, const std::filesystem::path& resumed) {
  auto plan = distributed::stages_of_numbers(captured.graph(), stages_in(resumed, options));
  const bool fits = plan.stages.size() == static_cast<size_t>(group.size());
  if (fits) return distributed::share_stages(group, captured.graph(), plan);
  const int64_t samples = std::max<int64_t>(1, example.size(0) / options.pipeline.micro_batches);
  const auto guard = amp::autocast_for(training.resolved_precision(), c10::kCPU);
  const at::Tensor micro_batch = example.narrow(0, 0, samples);
  if (!options.stage_memory) return distributed::measured_stages(group, captured, {micro_batch});
  return distributed::measured_stages(group, captured, {micro_batch}, options.stage_memory->bytes,
                                      {.optimizer_bytes = optimizer_bytes(training),
                                       .schedule = options.pipeline.schedule,
                                       .micro_batches = options.pipeline.micro_batches});
}

/// What a run of a pipeline needs. All processes find the same.
void check_pipeline(const distributed::Pipeline& pipeline, distributed::ProcessGroup& group,
                    const TrainOptions& training) {
  // Each process rounds moments to bf16 with numbers of its own, and copies of a weight would drift apart.
  if (training.moments == amp::MomentFormat::bf16) {
    std::vector<std::string> patterns;
    std::istringstream text(training.fp32_moments);
    for (std::string pattern; std::getline(text, pattern, ',');) patterns.push_back(pattern);
    for (const std::string& name : pipeline.shared_parameters()) {
      const auto names = [&](const std::string& pattern) { return quant::matches_module(pattern, name); };
      if (std::ranges::none_of(patterns, names))
        fail(kPartedTaskWhere, "expected no moments in bf16 for a weight that several stages have, got '",
             name, "'; --fp32-moments '", name, "' keeps its moments in fp32");
    }
  }
  const at::Tensor without = at::zeros({group.size()}, at::kLong);
  without[group.rank()] = pipeline.shared_module()->parameters().empty() ? 1 : 0;
  group.all_reduce(without).wait();
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (without[rank].item<int64_t>() > 0)
      fail(kPartedTaskWhere, "expected a layer with parameters for each of ", group.size(),
           " processes, got none for process ", rank, ": the model has too few");
  }
}

struct SplitModel final : ShardedModel {
  std::shared_ptr<distributed::ProcessGroup> group;
  std::unique_ptr<distributed::TensorParallel> tensor;
  std::unique_ptr<distributed::Pipeline> pipeline;  ///< one of the two is there

  const distributed::ModelParts& parts() const { return tensor ? tensor->parts() : pipeline->parts(); }

  bool is_pipeline() const override { return pipeline != nullptr; }
  double step(const std::vector<at::Tensor>& inputs, const at::Tensor& targets,
              const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>& loss,
              double scale) override {
    return pipeline->step(inputs, targets, loss, scale);
  }
  std::vector<at::Tensor> own_parameters() const override {
    return tensor ? tensor->own_parameters() : pipeline->own_parameters();
  }
  amp::GradientTotal total_gradients() const override {
    return distributed::total_gradients(*group, own_parameters());
  }
  torch::nn::Module* root() const override { return group->rank() == 0 ? whole.get() : nullptr; }
  void gather() const override { parts().gather(root()); }
  void gather(const amp::FusedOptimizer& own, amp::FusedOptimizer* state) const override {
    parts().gather(own, root(), state);
  }
  void scatter() const override { parts().scatter(*whole); }
  void scatter(const amp::FusedOptimizer& state, amp::FusedOptimizer& own) const override {
    parts().scatter(*whole, state, own);
  }
};

}  // namespace

void ParallelOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "parallel", .help = "Several processes: what they share out"}, parallel);
  pipeline.visit_fields(visitor);
  visitor(
      {.name = "stage_memory",
       .help = "Pipeline: memory that each process may use for its layers, which are placed so that they fit",
       .unset = "balanced by times alone"},
      stage_memory);
}

void ParallelOptions::validate() const {
  pipeline.validate();
}

Task sharded_task(Task task, const ParallelOptions& options, const TrainOptions& training,
                  graph::PassReport* report, const std::filesystem::path& resumed) {
  if (options.parallel == Parallel::data) return task;
  if (!task.group || task.group->size() < 2)
    fail(kPartedTaskWhere, "expected several processes for parallel ", enum_name(options.parallel),
         ", got one");
  options.validate();
  auto parted = std::make_shared<SplitModel>();
  parted->whole = task.model;
  parted->group = task.group;
  const auto group = task.group;
  const at::Tensor example = example_batch(*task.batches).inputs;
  task = captured_task(std::move(task), kPartedTaskWhere, [&](const auto& captured) {
    if (options.parallel == Parallel::pipeline) {
      const auto plan = choose_stages(*captured, *group, options, training, example, resumed);
      if (report != nullptr) *report = {"pipeline", distributed::describe_stages(plan), {}};
      parted->stages = nlohmann::json{{"begin", distributed::stage_numbers(captured->graph(), plan)},
                                      {"memory", limit_of(options)}}
                           .dump();
      parted->pipeline = std::make_unique<distributed::Pipeline>(*captured, plan, group, options.pipeline);
      check_pipeline(*parted->pipeline, *group, training);
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
