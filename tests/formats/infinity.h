// Infinity as the tests of number formats write it.
#pragma once

#include <limits>

namespace ulp::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace ulp::test
