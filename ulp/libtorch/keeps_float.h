// A mark for modules that stay in fp32 where a network's parameters become 16-bit numbers.
#pragma once

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// A torch::nn::Module that derives from this, too, computes in fp32 whatever the networks around it do: amp::apply_precision()
/// leaves its parameters and buffers as they are, and those of the modules in it.
class ULP_API KeepsFloat {
 public:
  virtual ~KeepsFloat() = default;

 protected:
  KeepsFloat() = default;
  KeepsFloat(const KeepsFloat&) = default;
  KeepsFloat& operator=(const KeepsFloat&) = default;
};

}  // namespace ulp::libtorch
