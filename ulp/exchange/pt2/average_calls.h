// Averages of codes in PyTorch's operators.
#pragma once

#include "ulp/exchange/speller.h"

namespace ulp::exchange::pt2 {

/// Averages of codes, of windows or of whole images, by ulp::average_codes's two rules.
void spell_average(Speller& spell);

}  // namespace ulp::exchange::pt2
