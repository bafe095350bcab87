// Reports what a student learned, as tables and charts: for the terminal, report.json and report.html.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/measure/measure.h"
#include "ulp/report/report.h"
#include "ulp/train/evaluate.h"

namespace ulp::app {

/// One network of a run: a teacher, an assistant, the student alone and taught.
struct DistillationState {
  std::string name;     ///< its part: "teacher", "student alone"
  std::string network;  ///< "resnet20"
  std::optional<train::Accuracy> accuracy = {};
  std::optional<double> agreement = {};  ///< share of the test predictions that are the teacher's
  int64_t parameters = 0;                ///< elements; 0 of an engine
  int64_t bytes = 0;                     ///< of the engine's weights
  std::optional<measure::Timing> one = {}, sixteen = {};  ///< latency at these batch sizes
};

/// How a training went.
struct LearningCurve {
  std::string name;
  std::vector<double> steps;
  std::map<std::string, std::vector<double>>
      losses;  ///< by part: "loss", "labels", "kd"; means since the last point
};

/// Everything that one run of `ulp distill` found out.
struct DistillOutcome {
  std::string title;  ///< "lenet5 from resnet14"
  std::vector<DistillationState> states;
  std::vector<LearningCurve> curves;
  std::vector<std::string> learns;  ///< what the loss is made of, a line a term
  std::vector<std::string> notes;
  std::vector<report::Fact> settings;
};

/// Accuracy, agreement, size and latency of each network.
ULP_API report::Table learners_table(const DistillOutcome& outcome);

/// The table, the curves, and what was learned from.
ULP_API report::Report distill_report(const DistillOutcome& outcome);

}  // namespace ulp::app
