// Arithmetic of uint16, uint32 and uint64, for which LibTorch has none.
#pragma once

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// Computes a node of two operands (BitwiseNot: one) of these types in int64, whose lower bits are the
/// result's. False for other nodes.
bool unsigned_arithmetic(Call& call);

}  // namespace ulp::exchange::onnx_import
