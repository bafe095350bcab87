// Types of the file that no type of LibTorch stands for alone: numbers of 4 and 2 bits lie in wider ones.
#pragma once

#include <string>

#include "ulp/exchange/onnx_import/element_type.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// The TensorProto.DataType that the file gives a value, followed through casts, quantizers and what moves
/// elements; 0 where a node computes the value in the type of its inputs.
int64_t type_of(const Call& call, const std::string& value);

/// Whether the file says that a value has whole numbers of 4 or 2 bits, which are kept in 8.
bool is_of_few_bits(const Call& call, const std::string& value);

/// Floats of 8 or 4 bits nearest to `x`, the even codes of two, in the type that holds them. Beyond the
/// largest number: it, where numbers saturate, and so infinity; else e5m2 has its infinity, and the others of
/// 8 bits, which have none, NaN.
at::Tensor to_small_float(const at::Tensor& x, const ElementType& to, bool saturate);

}  // namespace ulp::exchange::onnx_import
