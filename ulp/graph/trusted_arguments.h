// What operators of LibTorch trust: sizes, places and counts in the arguments of a call that they read memory
// by, or loop by, without a check of their own.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>

#include "ulp/base/export.h"

namespace ulp::graph {

/// Whether LibTorch trusts arguments of this operator.
ULP_API bool trusts_arguments(const c10::FunctionSchema& schema);

/// What is expected of the arguments of a call that LibTorch 2.13 would read memory beyond its tensors by,
/// or loop by for longer than their sizes say: "a normalization of 0 to 2, got 7". Empty where all is well.
/// Dimensions of Fourier transforms, scales of resizing that are not those of the sizes, parameters and
/// states of recurrent layers, offsets of bags, paddings of pools, kernels beside those of the weights,
/// repeated differences and powers, and the one quotient of whole numbers that has no value.
ULP_API std::string distrusted_argument(const c10::FunctionSchema& schema,
                                        const torch::jit::Stack& arguments);

}  // namespace ulp::graph
