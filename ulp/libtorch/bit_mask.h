// Masks of one bit an element: which elements of a tensor are kept (1) and which are pruned (0).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// Bytes of a mask of that many elements.
constexpr int64_t mask_bytes(int64_t elements) {
  return elements / 8 + (elements % 8 != 0 ? 1 : 0);
}

/// The bits of a bool tensor of any shape: uint8 [ceil(elements / 8)] on the CPU. Element i in row-major
/// order is bit i % 8 of byte i / 8, and 1 means true; spare bits of the last byte are 0. Throws ulp::Error
/// for another type.
ULP_API at::Tensor pack_mask(const at::Tensor& keep);

/// The bool tensor of these sizes, on the CPU. Throws ulp::Error as check_mask() does.
ULP_API at::Tensor unpack_mask(const at::Tensor& bits, at::IntArrayRef sizes);

/// How many bits are set.
ULP_API int64_t count_kept(const at::Tensor& bits);

/// Throws ulp::Error `[where] ...` naming `what` unless the bits are a dense one-dimensional uint8 tensor on
/// the CPU, as many as `elements` need, and none of the spare ones is set.
ULP_API void check_mask(const char* where, const char* what, const at::Tensor& bits, int64_t elements);

/// The mask of a tensor of these sizes and strides (dense, without overlap) in the order of its memory. The
/// bits themselves where that order is row-major. Throws ulp::Error as check_mask() does.
ULP_API at::Tensor mask_in_memory_order(const at::Tensor& bits, at::IntArrayRef sizes,
                                        at::IntArrayRef strides);

}  // namespace ulp::libtorch
