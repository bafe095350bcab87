// Which sizes a dimension of an imported model may have.
#pragma once

#include <cstdint>

namespace ulp::exchange {

/// max 0: the size stays `min`.
struct SizeRange {
  int64_t min = 1, max = 0, multiple = 1;
};

}  // namespace ulp::exchange
