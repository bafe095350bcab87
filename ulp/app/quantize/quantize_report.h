// Reports what quantizing did to a model, as tables and charts: for the terminal, report.json and
// report.html.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/analysis/compare.h"
#include "ulp/quant/analysis/sensitivity.h"
#include "ulp/quant/weights/mixed_precision.h"
#include "ulp/report/report.h"
#include "ulp/train/evaluate.h"

namespace ulp::app {

/// Everything that one run of `ulp quantize` found out.
struct QuantizeOutcome {
  std::string model, mode;
  std::optional<train::Accuracy> float_accuracy, accuracy;  ///< of the engines, on test data
  int64_t float_bytes = 0, bytes = 0;                       ///< of the engines' weights
  std::vector<std::string> quantized;                       ///< one line a layer
  std::vector<std::string> reasons;                ///< what was not folded, fused or quantized, and why
  std::vector<quant::ValueComparison> comparison;  ///< in order of execution; empty: not asked for
  std::optional<quant::Sensitivity> sensitivity;
  std::optional<quant::MixedPrecision> search;  ///< for bits of weights
  std::vector<report::Fact> settings;
};

/// Test accuracy and size of the float and the quantized engine.
ULP_API report::Table result_table(const QuantizeOutcome& outcome);
/// Signal to quantization noise and other errors of each activation.
ULP_API report::Table comparison_table(const std::vector<quant::ValueComparison>& comparison);
/// Each layer's harm alone, worst first.
ULP_API report::Table sensitivity_table(const quant::Sensitivity& sensitivity);

/// Everything a search measured; the result is marked.
ULP_API report::Table measured_table(const quant::MixedPrecision& search);
/// A row for each weight: its cost alone as each candidate, and the candidate it got.
ULP_API report::Table bits_table(const quant::MixedPrecision& search);
/// Loss against size: the front as it is estimated, and what was measured.
ULP_API report::Chart front_chart(const quant::MixedPrecision& search);

/// All of them, charts of comparison, sensitivity and search, and the reasons.
ULP_API report::Report quantize_report(const QuantizeOutcome& outcome);

}  // namespace ulp::app
