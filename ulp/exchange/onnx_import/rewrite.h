// What files say in other words becomes operators that the importer knows, before anything is computed.
#pragma once

#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

/// The domain of operators that only rewriting writes.
inline constexpr const char* kOwnDomain = "ulp.import";

/// Operators on codes (QLinearConv, com.microsoft's QLinearAdd, ...) as QuantizeLinear and DequantizeLinear around those on numbers.
void rewrite_code_operators(FileGraph& graph);

/// A product by MatMulInteger of what DynamicQuantizeLinear gives, with its scales and bias, becomes LinearDynamic of kOwnDomain: input,
/// codes [in, out], scales, bias.
void rewrite_dynamic_products(FileGraph& graph);

/// Weights of recurrent layers, statistics of batch norms, and codes with their scales that nodes make of tensors of the file become
/// such tensors.
void fold_constants(FileModel& model, const OnnxImportOptions& options);

/// Values in branches get names that no value outside of them has.
void name_inner_values(FileGraph& graph);

}  // namespace ulp::exchange::onnx_import
