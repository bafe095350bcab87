// The main job on Fashion-MNIST: train in three precisions, quantize, lower, evaluate and measure, report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/report/report.h"

namespace ulp::app {

/// A part of the demo, in order.
struct DemoPart {
  std::string what;               ///< "train in fp32, 3 epochs"
  std::optional<double> seconds;  ///< estimated; nothing where that is not known beforehand
};

/// Options of `ulp demo`.
struct DemoOptions {
  bool quick = false;  ///< a few hundred steps instead of whole epochs: under a minute
  std::filesystem::path out = "demo-out";
  std::string data = "fashion-mnist";
  std::string model = "resnet14";
  int64_t epochs = 3;
  uint64_t seed = 1;
  /// Trains with amp::AdaptiveThreads: fewer threads where other programs compute.
  bool adapt_threads = false;
  /// Called once the data are there and before the work begins; may be empty.
  std::function<void(const std::vector<DemoPart>&)> announce = {};
};

/// Lists the parts of the demo and about how long each takes on so many processor cores: the times of
/// resnet14 on two cores of a Zen 4, scaled. Processors differ by several times and other networks are not
/// estimated.
ULP_API std::vector<DemoPart> demo_parts(const DemoOptions& options, int cores);
/// The parts as a short list of lines, the whole time first.
ULP_API std::string describe(const std::vector<DemoPart>& parts, int cores);

/// Runs the job with progress on stderr and writes into `out`: model.safetensors, model.{fp32,bf16,int8}.ulp,
/// report.json and report.html. Throws Interrupted on Ctrl-C; files written so far are whole.
ULP_API report::Report run_demo(const DemoOptions& options);

}  // namespace ulp::app
