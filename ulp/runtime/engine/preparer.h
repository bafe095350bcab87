// Makes the runners of a plan's steps: once for steps that are alike, and within a budget of bytes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {

class Preparer {
 public:
  /// `budget`: bytes that packed constants and tables may take together.
  Preparer(kernels::Isa isa, size_t budget) : isa_(isa), budget_(budget), left_(budget) {}

  /// The step's runner, shared with earlier steps of the same op, attributes, constants and tensors. Throws
  /// ulp::Error naming the step that would exceed the budget, before it is prepared.
  std::shared_ptr<const Runner> prepare(const StepView& view);

 private:
  kernels::Isa isa_;
  size_t budget_, left_;
  std::map<std::string, std::shared_ptr<const Runner>> made_;
};

}  // namespace ulp::runtime
