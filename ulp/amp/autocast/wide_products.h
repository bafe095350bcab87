// Products in bf16 and fp16 on processors that have no instructions for them. There LibTorch's kernels are 5 to 60 times as slow
// as those of fp32, so the operands are widened to fp32 and the result is rounded once, which is what the instructions do:
// products of two halves are exact in fp32, sums are fp32, results are rounded. Internal to the room.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include <span>

#include "ulp/base/export.h"

namespace ulp::amp {

/// Whether this processor has no instructions for products of `dtype`, bf16 or fp16, that LibTorch uses: oneDNN's answer.
ULP_API bool computes_wide(c10::ScalarType dtype);

/// The ops that wide_product() knows, by full name.
ULP_API std::span<const char* const> wide_products();

/// Computes the op on operands of a half type in fp32 and rounds the result, its gradients too; autograd saves the operands as
/// they are. Of the stack as the op's own kernel would. Returns false, and has done nothing, for an op that is not of the list,
/// for operands of other or several types, for attention with dropout, and under libtorch::PlainKernels.
ULP_API bool wide_product(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace ulp::amp
