// The process's memory, suited to training.
#pragma once

#include "ulp/base/export.h"

namespace ulp::amp {

/// For programs that train on the CPU; call it once, at the begin of main(): later calls do nothing, and
/// tensors that are there already stay where they are. Every step of a training loop frees and asks for the
/// same hundreds of megabytes. From here on
///  - the C heap keeps freed memory instead of giving it back to the system, which would clear it anew page
///    by page (glibc: mallopt with M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD; large tensors
///    made by other threads than main's are still mapped and unmapped);
///  - the kernel is asked for large pages under CPU tensors of 2 MiB and more (Linux: MADV_HUGEPAGE), by an
///    allocator in front of the one that LibTorch uses now.
/// Both hold for the whole process, which keeps the memory of its peak to its end. Without glibc or Linux,
/// and where /sys/kernel/mm/transparent_hugepage/enabled is "never", that half has no effect.
ULP_API void prepare_training_memory();

}  // namespace ulp::amp
