// The kinds of numbers whose products have peaks of their own.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"

namespace ulp::kernels {

/// The type that is multiplied. A multiplication and its addition count as two operations, of bits an
/// exclusive or and its count.
enum class MathType : uint8_t { f32, bf16, int8, binary };
/// How many there are.
inline constexpr int kMathTypeCount = 4;
/// "f32", "bf16", "int8", "binary".
ULP_API const char* to_string(MathType type);

}  // namespace ulp::kernels
