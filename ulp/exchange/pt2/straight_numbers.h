// Numbers that a torch.export program computes from sizes.
#pragma once

#include "ulp/exchange/pt2/program.h"

namespace ulp::exchange::pt2 {

/// Capture sees a program at a few sizes and takes numbers between and beyond them from a polynomial. Throws FileError that names the
/// node for functions that leave it, `x.shape[0] % 8`, `min(x.shape[0], 5)`, comparisons, where a result or an operator
/// follows them; those that only checks read count for nothing.
void check_straight_numbers(const ProgramGraph& graph);

}  // namespace ulp::exchange::pt2
