#include <algorithm>
#include <cmath>
#include <sstream>

#include "ulp/app/demo/demo_parts.h"

namespace ulp::app {

namespace {

// Seconds on two cores of a Zen 4 (AVX-512 with bf16), resnet14.
constexpr double kFp32Epoch = 44, kBf16Epoch = 31, kHalfStep = 0.25, kQuantize = 5, kEvaluate = 12;
constexpr double kStepsPerEpoch = 468;
constexpr const char* kEstimated = "resnet14";

/// A tenth of the work does not spread over cores.
double on_cores(double seconds_on_two, int cores) {
  return seconds_on_two * (0.1 + 0.9 * 2.0 / cores);
}

std::string about(double seconds) {
  std::ostringstream out;
  if (seconds < 90) {
    out << "about " << std::max(5.0, 5 * std::round(seconds / 5)) << " s";
  } else {
    out << "about " << std::round(seconds / 60) << " min";
  }
  return out.str();
}

}  // namespace

std::vector<DemoPart> demo_parts(const DemoOptions& options, int cores) {
  const auto estimate = [&](double seconds_on_two) -> std::optional<double> {
    if (options.model != kEstimated) return std::nullopt;
    return on_cores(seconds_on_two, cores);
  };
  const std::string epochs = std::to_string(options.epochs) + (options.epochs == 1 ? " epoch" : " epochs");
  const std::string length = options.quick ? std::to_string(kQuickSteps) + " steps" : epochs;
  const double share = options.quick ? kQuickSteps / kStepsPerEpoch : static_cast<double>(options.epochs);
  const int64_t half_steps = options.quick ? kQuickHalfSteps : kHalfSteps;
  const measure::MeasureOptions budget = measure_budget(options.quick);
  constexpr int kBatchSizes = 2, kVariants = 5;
  return {{"train in fp32, " + length, estimate(share * kFp32Epoch)},
          {"train in bf16, " + length + ", in turn with fp32", estimate(share * kBf16Epoch)},
          {"train in fp16 with loss scaling, " + std::to_string(half_steps) + " steps",
           estimate(kHalfStep * static_cast<double>(half_steps))},
          {"quantize to int8, lower to engines", estimate(kQuantize)},
          {"evaluate the five variants", estimate(kEvaluate)},
          {"measure speed (up to three times that on a busy machine)",
           kBatchSizes * kVariants * budget.rounds * budget.round_seconds}};
}

std::string describe(const std::vector<DemoPart>& parts, int cores) {
  size_t width = 0;
  bool all_known = true;
  double total = 0;
  for (const DemoPart& part : parts) {
    width = std::max(width, part.what.size());
    all_known = all_known && part.seconds.has_value();
    total += part.seconds.value_or(0);
  }
  std::ostringstream out;
  out << "The demo on " << cores << (cores == 1 ? " core" : " cores");
  if (all_known)
    out << ", " << about(total)
        << " in all (roughly, on a quiet machine; processors differ by several times)";
  out << ":\n";
  for (const DemoPart& part : parts) {
    out << "  " << part.what;
    if (part.seconds) out << std::string(width - part.what.size() + 2, ' ') << about(*part.seconds);
    out << '\n';
  }
  return out.str();
}

}  // namespace ulp::app
