// Makes the runners of a plan's steps: once for steps that are alike, and within a budget of bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/ops/prepacked_weights.h"

namespace ulp::runtime {

/// Serves one plan, and all sizes of one with free dimensions. Not for several threads at once.
class Prepacker {
 public:
  /// `budget`: bytes that packed constants and tables may take together.
  Prepacker(kernels::Isa isa, size_t budget, const PackRules& rules = {})
      : isa_(isa), budget_(budget), left_(std::make_shared<std::atomic<size_t>>(budget)), packs_(rules) {}

  /// The step's runner, shared with the living ones of steps of the same op, attributes, constants and
  /// tensors. Its bytes come back to the budget with its end, but for what stays in packs(). Throws
  /// ulp::Error naming the step that would exceed the budget, before it is prepared.
  std::shared_ptr<const Runner> prepare(const StepView& view);

  /// The runner of steps that run as one (prepare_conv_block()); null where they run one by one, or where the
  /// budget does not hold their constants twice, as timing both ways does.
  std::shared_ptr<const Runner> prepare_block(std::span<const StepView> views);

  /// Drops what it knows of runners that have ended.
  void forget_ended();

  /// For the views of all steps.
  PrepackedWeights& packs() { return packs_; }

 private:
  std::shared_ptr<const Runner> count(std::unique_ptr<Runner> made, size_t bytes, size_t given_back);

  kernels::Isa isa_;
  size_t budget_;
  std::shared_ptr<std::atomic<size_t>> left_;
  PrepackedWeights packs_;
  std::map<std::string, std::weak_ptr<const Runner>> made_;
};

}  // namespace ulp::runtime
