// What operators of LibTorch trust: sizes, places and counts in the arguments of a call that they read memory
// by, or loop by, without a check of their own.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace ulp::exchange::pt2 {

/// Throws FileError for arguments that LibTorch 2.13 would read memory beyond its tensors by, or loop by for
/// longer than their sizes say: dimensions of Fourier transforms, scales of resizing that are not those of
/// the sizes, parameters and states of recurrent layers, offsets of bags, paddings of pools, kernels beside
/// those of the weights, repeated differences and powers, and the one quotient of whole numbers that has no
/// value.
void check_trusted_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

}  // namespace ulp::exchange::pt2
