// Masks of one bit an element, as the room of pruning names them: see ulp/libtorch/bit_mask.h.
#pragma once

#include "ulp/libtorch/bit_mask.h"

namespace ulp::prune {

using libtorch::check_mask;
using libtorch::count_kept;
using libtorch::mask_bytes;
using libtorch::pack_mask;
using libtorch::unpack_mask;

}  // namespace ulp::prune
