// Calls that make many tensors without memory of their own, which no limit of bytes sees.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace ulp::exchange::pt2 {

/// Dimensions of a value.
inline constexpr int64_t kMostDims = 64;

/// How many tensors the list has that a call of an operator makes, by the numbers in its arguments; 0 for operators that make
/// no list, and what is below 1 is for the operator to refuse. Throws FileError for a grid of more than kMostDims dimensions, and
/// for places to split at that a tensor holds.
int64_t listed_tensors(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

}  // namespace ulp::exchange::pt2
