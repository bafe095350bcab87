// Memory for what an optimizer streams through in every step.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"

namespace ulp::amp {

constexpr size_t kLargePage = size_t{1} << 21;

/// Asks the kernel for large pages under the multiples of kLargePage that [memory, memory + bytes) spans,
/// before they are touched: a stream over small pages stops for an address translation every 4 KiB, on
/// virtual machines for two. No effect outside of Linux, and where the system allows no large pages
/// (/sys/kernel/mm/transparent_hugepage/enabled is "never").
void ask_for_large_pages(const void* memory, size_t bytes);

/// As at::zeros_like in `type` on the CPU, without history, after ask_for_large_pages().
ULP_API at::Tensor zeros_on_large_pages(const at::Tensor& like, c10::ScalarType type);

}  // namespace ulp::amp
