// The steps of the road that change the model: training in each precision, quantized training, pruning,
// distillation.
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/amp/int8/to_int8.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/app/check/road_steps.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/teacher.h"
#include "ulp/graph/module_copy.h"
#include "ulp/prune/structured/prune_channels.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::app {

namespace {

constexpr const char* kRoadTraining = "road_report";
constexpr double kRoadRate = 1e-3, kRoadShare = 0.3;
/// Largest difference of a cut network from the zeroed one, of the largest element of the result.
constexpr double kExactCut = 1e-3;

/// Parameters that are numbers and trained.
std::vector<at::Tensor> trained_parameters(const torch::nn::Module& model) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) parameters.push_back(parameter);
  }
  if (parameters.empty()) fail(kRoadTraining, "expected a parameter that is trained, got none");
  return parameters;
}

/// Takes a step from the gradients that are there; those of scaled losses need no scale here, for the losses
/// are small.
void take_step(const std::vector<at::Tensor>& parameters, const amp::Precision& precision) {
  const auto with = std::ranges::count_if(
      parameters, [](const at::Tensor& parameter) { return parameter.grad().defined(); });
  if (with == 0) fail(kRoadTraining, "expected gradients of parameters, got none");
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined() && !parameter.grad().isfinite().all().item<bool>())
      fail(kRoadTraining, "expected finite gradients, got inf or NaN");
  }
  if (precision.parameter_dtype && !precision.master_weights) {
    torch::optim::SGD(parameters, torch::optim::SGDOptions(kRoadRate)).step();
    return;
  }
  amp::FusedOptimizer optimizer(parameters, amp::SgdRule{.lr = kRoadRate});
  amp::fused_step(optimizer, nullptr, {});
}

std::string step_text(const std::vector<at::Tensor>& parameters) {
  const auto with = std::ranges::count_if(
      parameters, [](const at::Tensor& parameter) { return parameter.grad().defined(); });
  return "a step, gradients of " + std::to_string(with) + " of " + std::to_string(parameters.size()) +
         " parameters";
}

/// The model with layers of 8 bits where the precision has them.
std::shared_ptr<graph::GraphModule> in_precision(const std::shared_ptr<graph::GraphModule>& model,
                                                 const amp::Precision& precision, graph::PassReport& report) {
  if (precision.fp8) return amp::to_fp8(model, amp::Fp8Recipe::named(precision.name), &report);
  if (precision.int8) return amp::to_int8(model, amp::Int8Recipe::named(precision.name), &report);
  return model;
}

RoadOutcome tried_training(const RoadSetting& setting, const amp::Precision& precision) {
  const at::AutoGradMode gradients(true);
  graph::PassReport report;
  const auto model = in_precision(own_copy(setting), precision, report);
  amp::apply_precision(*model, precision);
  model->train();
  const std::vector<at::Tensor> parameters = trained_parameters(*model);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : setting.inputs) inputs.push_back(amp::cast_input(precision, input));
  std::vector<at::Tensor> results;
  {
    const amp::Autocast guard = amp::autocast_for(precision, at::kCPU);
    results = model->forward_all(inputs);
  }
  road_loss(results).backward();
  take_step(parameters, precision);
  if (precision.fp8) amp::update_fp8(*model);
  return {step_text(parameters), report.near_misses};
}

RoadOutcome tried_qat(const RoadSetting& setting) {
  const at::AutoGradMode gradients(true);
  const auto model = quant::prepare_qat(own_copy(setting), quant::Recipe::x86_int8());
  const std::vector<at::Tensor> parameters = trained_parameters(*model);
  road_loss(model->forward_all(setting.inputs)).backward();
  take_step(parameters, {});
  graph::PassReport report;
  const auto quantized = quant::convert_qat(model, &report);
  RoadOutcome outcome = tried_engine(setting, *quantized, /*bf16=*/false, /*exact=*/false);
  outcome.says =
      step_text(parameters) + ", " + std::to_string(report.changes.size()) + " quantized, " + outcome.says;
  outcome.left = report.near_misses;
  return outcome;
}

/// The results of the cut network are those of the zeroed one.
void expect_zeroed(const RoadSetting& setting, const prune::PrunedChannels& pruned) {
  const at::NoGradGuard no_grad;
  const auto zeroed = own_copy(setting);
  prune::zero_units(*zeroed, pruned.groups, pruned.removals);
  pruned.module->eval();
  const std::vector<at::Tensor> want = zeroed->forward_all(setting.inputs),
                                got = pruned.module->forward_all(setting.inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    if (!at::isFloatingType(want[i].scalar_type()) || want[i].numel() == 0) continue;
    const at::Tensor w = want[i].to(at::kDouble), g = got.at(i).to(at::kDouble);
    const double largest = w.abs().max().item<double>(), error = (w - g).abs().max().item<double>();
    if (!(error <= kExactCut * largest + 1e-6))
      fail(kRoadTraining, "expected the results of the zeroed network from the cut one, got result ", i,
           " that differs by ", error, " of at most ", largest);
  }
}

RoadOutcome tried_pruning(const RoadSetting& setting) {
  const auto model = own_copy(setting);
  const prune::PrunedChannels pruned = prune::prune_channels(*model, {.share = kRoadShare});
  expect_zeroed(setting, pruned);
  const auto percent = [](int64_t before, int64_t after) {
    return std::to_string(before == 0
                              ? 100
                              : std::lround(100 * static_cast<double>(after) / static_cast<double>(before))) +
           " %";
  };
  RoadOutcome outcome{std::to_string(pruned.cut.size()) + (pruned.cut.size() == 1 ? " group" : " groups") +
                      " cut by 30 %: " + percent(pruned.before.parameters, pruned.after.parameters) +
                      " of the parameters and " + percent(pruned.before.macs, pruned.after.macs) +
                      " of the multiplications are left"};
  for (const prune::GroupRemoval& group : pruned.cut) {
    if (!group.whole.empty()) outcome.left.push_back(group.name + ": " + group.whole);
  }
  for (const prune::Obstacle& obstacle : pruned.groups.obstacles)
    outcome.left.push_back(obstacle.layer + ": " + obstacle.reason);
  return outcome;
}

RoadOutcome tried_distillation(const RoadSetting& setting) {
  const at::AutoGradMode gradients(true);
  const auto student = own_copy(setting);
  const distill::Recipe recipe{.terms = {{.loss = "kd"}}, .labels = 0};
  const auto teacher = distill::graph_teacher(setting.model, distill::teacher_places(recipe));
  const distill::Batch batch{.inputs = setting.inputs};
  const int64_t samples =
      setting.inputs.empty() || setting.inputs[0].dim() == 0 ? 1 : setting.inputs[0].size(0);
  distill::Distiller distiller({.student = student,
                                .teacher = teacher,
                                .recipe = recipe,
                                .example = batch,
                                .samples = samples,
                                .batches = 1,
                                .epoch_batches = 1});
  distiller.train();
  const std::vector<at::Tensor> parameters = trained_parameters(*student);
  distiller.forward(batch);
  const at::Tensor loss = distiller.loss(batch);
  if (!std::isfinite(loss.item<double>()))
    fail(kRoadTraining, "expected a finite loss, got ", loss.item<double>());
  loss.backward();
  take_step(parameters, {});
  return {"a student of the same form learns by kd: " + step_text(parameters)};
}

/// Of two names of one precision the first is tried.
bool is_same_precision(const amp::Precision& a, const amp::Precision& b) {
  return a.autocast_dtype == b.autocast_dtype && a.needs_scaler == b.needs_scaler &&
         a.op_lists == b.op_lists && a.parameter_dtype == b.parameter_dtype &&
         a.batch_norm_fp32 == b.batch_norm_fp32 && a.master_weights == b.master_weights && a.tf32 == b.tf32 &&
         !a.fp8 && !a.int8 && !b.fp8 && !b.int8;
}

}  // namespace

at::Tensor road_loss(const std::vector<at::Tensor>& results) {
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    if (!at::isFloatingType(result.scalar_type()) || !result.requires_grad()) continue;
    const at::Tensor one = result.to(at::kFloat).square().mean();
    loss = loss.defined() ? loss + one : one;
  }
  if (!loss.defined())
    fail(kRoadTraining, "expected a floating result that depends on trained parameters, got none");
  if (!std::isfinite(loss.item<double>()))
    fail(kRoadTraining, "expected a finite loss, got ", loss.item<double>());
  return loss;
}

std::vector<RoadTrial> training_trials() {
  std::vector<RoadTrial> trials;
  std::vector<const amp::Precision*> taken;
  for (const amp::Precision& precision : amp::precisions()) {
    const bool again = std::ranges::any_of(
        taken, [&](const amp::Precision* other) { return is_same_precision(*other, precision); });
    if (precision.tf32 || again) continue;
    taken.push_back(&precision);
    const std::string name(precision.name);
    trials.push_back({{"train:" + name, "training in " + name}, [&precision](const RoadSetting& setting) {
                        return tried_training(setting, precision);
                      }});
  }
  return trials;
}

std::vector<RoadTrial> change_trials() {
  return {{{"qat", "quantization-aware training, as an int8 engine"}, tried_qat},
          {{"prune", "channels cut by 30 %"}, tried_pruning},
          {{"distill", "a student that learns from the model"}, tried_distillation}};
}

}  // namespace ulp::app
