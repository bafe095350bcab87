// Which sizes a dimension of an imported model may have.
#pragma once

#include <cstdint>
#include <string>

namespace ulp::exchange {

/// A dimension of an input that a file leaves free and an import gives one size.
struct FixedSize {
  std::string input, name;  ///< of the input, and of the dimension
  int64_t size = 0;
};

/// max 0: the size stays `min`.
struct SizeRange {
  int64_t min = 1, max = 0, multiple = 1;
};

}  // namespace ulp::exchange
