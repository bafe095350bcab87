// A NumericsWatch that looks on while a Trainer works.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/watch/watch.h"
#include "ulp/base/export.h"
#include "ulp/report/report.h"
#include "ulp/train/trainer.h"

namespace ulp::train {

/// Give it to Trainer::observe() before the first step, and take it away before it ends.
class ULP_API WatchObserver final : public StepObserver {
 public:
  explicit WatchObserver(torch::nn::Module& model, const amp::WatchOptions& options = {});

  void begin(int64_t step, double scale) override;
  void gradients(const torch::nn::Module& model, double scale) override;
  void end(const StepInfo& info) override;

  const amp::NumericsWatch& watch() const { return watch_; }
  /// "step 64, fp16: underflow 12 % -> 0.3 % ...": after a step that was sampled or skipped, else nothing. A
  /// line is given once.
  std::optional<std::string> news();
  /// Where the first value came from that was not finite in the last step, for a run that failed; empty if
  /// that step was not looked at, or had none.
  std::string explanation();
  /// The run as a page: training loss, and what watch_report() makes.
  report::Report report(const std::string& title, std::vector<report::Fact> settings) const;

 private:
  amp::NumericsWatch watch_;
  std::optional<amp::NumericsWatch::Step> step_;  ///< stays open when a step throws
  int64_t number_ = -1;                           ///< of the last step
  std::optional<std::string> news_;
  report::Series loss_{.name = "loss"};
};

}  // namespace ulp::train
