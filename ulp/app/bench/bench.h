// What `ulp bench` does: latency and throughput of engines and LibTorch models, measured in turn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/measure/measure.h"
#include "ulp/report/table.h"

namespace ulp::app {

struct BenchOptions {
  std::vector<std::string> models = {};    ///< files that load_inference_model() opens
  std::vector<int64_t> batches = {1, 64};  ///< at least one
  bool profile = false;                    ///< also the steps of each engine by time, at the largest batch
  /// A file for Perfetto with the steps of each engine (write_trace()); empty: none. Shows them as `profile`
  /// does.
  std::filesystem::path trace = {};
  bool pieces = false;               ///< also each LibTorch model in pieces (lower_partitioned())
  int contexts = 0;                  ///< above 0: also that many callers of each engine at a time
  int threads = 0;                   ///< of engines; 0: one per core
  double error_budget = 0;           ///< of engines, see runtime::EngineOptions
  double max_measuring_seconds = 5;  ///< of engines, see runtime::EngineOptions
  ModelSpec script_spec = {};        ///< what a TorchScript file does not say
  measure::MeasureOptions measure = {.rounds = 11};
};

/// The tables, "Speed" first: a row for each model at each batch size, marked where it stayed disturbed by
/// other programs; then "Callers" where contexts are asked for, and the steps of engines and the pieces of
/// models in pieces where a profile is. Inputs are random numbers (seed 0). Throws FileError where
/// load_inference_model() does, Error without models or batches, Interrupted on Ctrl-C.
ULP_API std::vector<report::Table> bench(const BenchOptions& options);

}  // namespace ulp::app
