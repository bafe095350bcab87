// What a run of distillation measures of its networks. Internal to the room.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ulp/app/distill/distill.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/graph/graph_module.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

/// Fills in an outcome, network by network. Throws Interrupted on Ctrl-C.
class DistillFigures {
 public:
  /// Both must outlive it.
  DistillFigures(const DistillRequest& request, DistillOutcome& outcome)
      : request_(request), outcome_(outcome) {}

  /// A teacher: what others' predictions are compared with, if it is the first.
  void add_teacher(const std::string& name, const InferenceModel& teacher);
  void add(const std::string& name, const std::string& network, graph::GraphModule& model,
           const train::Forward& forward);
  /// The engines of the networks whose graphs could be lowered, in turn.
  void measure_latency();
  void show(const Stage& stage) const;

 private:
  void evaluate(DistillationState& state, const train::Forward& forward);
  void add_plan(DistillationState& state, graph::GraphModule& model);

  const DistillRequest& request_;
  DistillOutcome& outcome_;
  std::vector<at::Tensor> reference_;                    // the first teacher's classes, batch by batch
  std::vector<std::pair<size_t, runtime::Plan>> plans_;  // by state
};

/// Collects the losses of a run as points of a curve.
class CurveRecorder {
 public:
  CurveRecorder(std::string name, int64_t total_steps);
  void add(const train::StepInfo& info, const distill::DistillationTask* learner);
  LearningCurve take();

 private:
  void close();

  LearningCurve curve_;
  int64_t every_, last_step_ = 0;
  std::map<std::string, std::pair<double, int64_t>> sums_;  // since the last point
};

}  // namespace ulp::app
