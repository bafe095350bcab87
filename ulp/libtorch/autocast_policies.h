// What autocast does on a thread beyond LibTorch's own switches, for those who do work again as it was.
#pragma once

#include <memory>

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// The policies of this thread's autocast guards. Known to the room of the guards alone; others keep it and
/// set it.
class ULP_API AutocastPolicies {
 public:
  virtual ~AutocastPolicies();
};

/// Those that hold now on this thread; null where there are none.
ULP_API const std::shared_ptr<const AutocastPolicies>& autocast_policies();
/// Sets them and returns what was there.
ULP_API std::shared_ptr<const AutocastPolicies> set_autocast_policies(
    std::shared_ptr<const AutocastPolicies> policies);

}  // namespace ulp::libtorch
