#include "ulp/app/distill/distill_metrics.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/app/prune/latency.h"
#include "ulp/app/quantize/plan_metrics.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/structured/select.h"

namespace ulp::app {

namespace {

constexpr int64_t kPoints = 100;  // of a curve

}  // namespace

void DistillFigures::show(const Stage& stage) const {
  if (request_.progress) request_.progress(stage);
}

void DistillFigures::evaluate(DistillationState& state, const train::Forward& forward) {
  if (!request_.test_batches) return;
  const std::unique_ptr<train::BatchStream> batches = request_.test_batches();
  std::vector<at::Tensor> classes;
  const train::Forward watched = [&](const train::TaskBatch& batch) {
    const at::Tensor logits = forward(batch);
    classes.push_back(logits.argmax(-1));
    return logits;
  };
  state.accuracy = train::evaluate(watched, *batches, [&](int64_t done) {
    show({"evaluate " + state.name, request_.unit, done, batches->samples()});
  });
  if (reference_.empty()) {
    if (state.name.starts_with("teacher")) reference_ = std::move(classes);
    return;
  }
  int64_t same = 0, all = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    same += classes[i].eq(reference_[i]).sum().item<int64_t>();
    all += classes[i].numel();
  }
  state.agreement = static_cast<double>(same) / static_cast<double>(std::max<int64_t>(all, 1));
}

void DistillFigures::add_plan(DistillationState& state, graph::GraphModule& model) {
  state.parameters = prune::size_of(model.graph()).parameters;
  try {
    runtime::Plan plan = lower(model);
    state.bytes = weight_bytes(plan);
    plans_.emplace_back(outcome_.states.size(), std::move(plan));
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    outcome_.notes.push_back(state.name + " has no engine: " + error.what());
  }
}

void DistillFigures::add_teacher(const std::string& name, const InferenceModel& teacher) {
  DistillationState state{.name = name, .network = teacher.spec.name + (teacher.engine ? ", engine" : "")};
  evaluate(state, [&](const train::TaskBatch& batch) { return teacher.forward(batch.inputs); });
  if (teacher.graph) add_plan(state, *teacher.graph);
  outcome_.states.push_back(std::move(state));
}

void DistillFigures::add(const std::string& name, const std::string& network, graph::GraphModule& model,
                         const train::Forward& forward) {
  DistillationState state{.name = name, .network = network};
  evaluate(state, forward);
  add_plan(state, model);
  outcome_.states.push_back(std::move(state));
}

void DistillFigures::measure_latency() {
  std::vector<const runtime::Plan*> plans;
  for (const auto& [state, plan] : plans_) plans.push_back(&plan);
  if (plans.empty()) return;
  for (const int64_t batch : {1, 16}) {
    const std::vector<measure::Timing> times =
        time_engines(plans, {.batch = batch,
                             .threads = request_.threads,
                             .rounds = 7,
                             .round_seconds = 0.1,
                             .progress = [&](int64_t done, int64_t total) {
                               show({"measure latency", "round", done, total});
                             }});
    for (size_t i = 0; i < times.size(); ++i) {
      DistillationState& state = outcome_.states[plans_[i].first];
      (batch == 1 ? state.one : state.sixteen) = times[i];
    }
  }
}

CurveRecorder::CurveRecorder(std::string name, int64_t total_steps)
    : every_(std::max<int64_t>(1, total_steps / kPoints)) {
  curve_.name = std::move(name);
}

void CurveRecorder::add(const train::StepInfo& info, const distill::DistillationTask* learner) {
  const auto note = [&](const std::string& name, double value) {
    auto& [sum, count] = sums_[name];
    sum += value;
    ++count;
  };
  note("loss", info.loss);
  if (learner != nullptr) {
    const std::vector<distill::TermValue> values = learner->values();
    for (const distill::TermValue& value : values) {
      if (values.size() > 1) note(value.name, value.value);
    }
  }
  last_step_ = info.step + 1;
  if (last_step_ % every_ == 0) close();
}

void CurveRecorder::close() {
  curve_.steps.push_back(static_cast<double>(last_step_));
  for (const auto& [name, sum] : sums_) {
    std::vector<double>& values = curve_.losses[name];
    values.resize(curve_.steps.size() - 1, std::numeric_limits<double>::quiet_NaN());
    values.push_back(sum.first / static_cast<double>(sum.second));
  }
  sums_.clear();
}

LearningCurve CurveRecorder::take() {
  if (!sums_.empty()) close();
  for (auto& [name, values] : curve_.losses)
    values.resize(curve_.steps.size(), std::numeric_limits<double>::quiet_NaN());
  return std::move(curve_);
}

}  // namespace ulp::app
