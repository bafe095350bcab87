// The main job on Fashion-MNIST: train in three precisions, quantize, lower, evaluate and measure, report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ulp/base/export.h"
#include "ulp/report/report.h"

namespace ulp::app {

/// What `ulp demo` is asked for.
struct DemoOptions {
  bool quick = false;  ///< a few hundred steps instead of whole epochs: under a minute
  std::filesystem::path out = "demo-out";
  std::string data = "fashion-mnist";
  std::string model = "resnet14";
  int64_t epochs = 3;
  uint64_t seed = 1;
};

/// Runs the job with progress on stderr and writes into `out`: model.safetensors, model.{fp32,bf16,int8}.ulp,
/// report.json and report.html. Throws Interrupted on Ctrl-C; files written so far are whole.
ULP_API report::Report run_demo(const DemoOptions& options);

}  // namespace ulp::app
