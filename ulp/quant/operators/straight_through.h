// Internal.
#pragma once

#include <ATen/core/Tensor.h>

namespace ulp::quant {

/// `value`, whose gradient goes to `source` as if they were the same; one shape and dtype.
at::Tensor straight_through(const at::Tensor& source, const at::Tensor& value);

}  // namespace ulp::quant
