// What harnesses do with an array that has been read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "harness.h"

namespace ulp::fuzz {

/// Every byte of a dense array.
inline void read_all(const at::Tensor& array) {
  require(array.is_contiguous(), "a dense array");
  const auto* bytes = static_cast<const unsigned char*>(array.const_data_ptr());
  size_t sum = 0;
  for (size_t i = 0; i < array.nbytes(); ++i) sum += bytes[i];
  require(sum <= 255 * array.nbytes(), "bytes");
}

}  // namespace ulp::fuzz
