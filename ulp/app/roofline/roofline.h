// What `ulp roofline` does: each layer of a network below the measured roof of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/app/bench/step_profile.h"
#include "ulp/app/train/workload.h"
#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/measure/peaks/peaks.h"
#include "ulp/report/report.h"

namespace ulp::app {

/// In what numbers a network runs.
enum class RooflinePrecision : uint8_t { fp32, bf16, int8 };

/// What is measured, and how.
struct RooflineOptions {
  /// An engine file, or what find_workload() takes: a name has random weights.
  std::string model = {};
  int64_t batch = 1;
  /// Of the engine that is made of a model; engine files have theirs. int8 quantizes: networks over images
  /// statically, with random images, those over text dynamically. Training takes fp32, and bf16 by autocast.
  RooflinePrecision precision = RooflinePrecision::fp32;
  bool train = false;     ///< forward and backward passes of the captured model in LibTorch, not an engine
  int64_t length = 0;     ///< tokens in a text; 0: usual_length()
  int threads = 0;        ///< 0: one per core the process may use
  int runs = 5;           ///< at least; see Repetitions
  bool quick = false;     ///< see measure::PeakOptions
  ModelShape shape = {};  ///< what a TorchScript file or a name does not say
  UsageProbe probe = {};  ///< of what others take of the processors; empty: the machine itself
  std::function<void(const std::string& part)> progress = {};  ///< called before each part; may be empty
};

/// A network below the roof.
struct RooflineResult {
  std::string title = {};  ///< "resnet50, bf16, batch 1, engine"
  measure::Peaks peaks = {};
  std::vector<ProfiledPart> parts = {};
  double seconds = 0;                 ///< of all parts
  std::optional<double> others = {};  ///< see measure::share_of_others()
  std::vector<std::string> notes = {};
};

/// Throws ulp::Error for options that do not go together; `chosen`: the precision was asked for.
ULP_API void check_roofline(const RooflineOptions& options, bool chosen = false);

/// Measures the peaks before and after the network and keeps the higher ones. Throws FileError for a file
/// that cannot be read, Error for sizes that the network cannot have and where lower() does, Interrupted on
/// Ctrl-C.
ULP_API RooflineResult roofline(const RooflineOptions& options);

/// Tables of layers and peaks, the chart of both, the machine.
ULP_API report::Report roofline_report(const RooflineResult& result, const RooflineOptions& options);

}  // namespace ulp::app

namespace ulp {

template <>
struct EnumNames<app::RooflinePrecision> {
  static constexpr auto list =
      std::to_array<Word<app::RooflinePrecision>>({{app::RooflinePrecision::fp32, "fp32"},
                                                   {app::RooflinePrecision::bf16, "bf16"},
                                                   {app::RooflinePrecision::int8, "int8"}});
};

}  // namespace ulp
