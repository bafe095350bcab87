// Memory for what an optimizer streams through in every step.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/base/export.h"

namespace ulp::amp {

/// Asks the kernel for large pages under `memory`, before it is touched: a stream over small pages stops for
/// an address translation every 4 KiB, on virtual machines for two. Pages that begin or end outside of
/// `memory` are asked for, too: its neighbours on the heap are as large. No effect below 2 MiB, outside of
/// Linux, and where the system allows no large pages (/sys/kernel/mm/transparent_hugepage/enabled is
/// "never").
ULP_API void ask_for_large_pages(const void* memory, size_t bytes);

/// As at::zeros_like in `type`, without history. On Linux the kernel is asked for large pages where the
/// tensor spans some: a stream over small pages stops for an address translation every 4 KiB, on virtual
/// machines for two. No effect where the system allows none (/sys/kernel/mm/transparent_hugepage/enabled is
/// "never").
ULP_API at::Tensor zeros_on_large_pages(const at::Tensor& like, c10::ScalarType type);

}  // namespace ulp::amp
