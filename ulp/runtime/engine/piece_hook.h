// Where tests disturb the threads of pools.
#pragma once

#include "ulp/base/export.h"

namespace ulp::runtime {

/// Called by a thread that has taken a piece of a run, before it computes the piece; a run on one thread is
/// one piece. May sleep; must not throw.
using PieceHook = void (*)();

/// Sets the hook of all pools of the process; null, as it is from the start: none.
ULP_API void set_piece_hook(PieceHook hook);

/// For pools: calls the hook, where there is one.
void call_piece_hook();

}  // namespace ulp::runtime
