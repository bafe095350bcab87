// Codes between QuantizeLinear and DequantizeLinear.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/exchange/onnx_import/element_type.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// The weight [out, in] of a linear layer from codes [in, out], whose channels are the columns. Undefined
/// where the node has other inputs than tensors of the file.
at::Tensor turned_codes(Call& call, const FileNode& dequantize);

/// A weight in codes of 8 bits that multiplies floats: ulp::dequantize_weight, which has no zero points, and
/// what they add.
struct CodedWeight {
  at::Tensor weight;        ///< [out, in]
  at::Tensor offset;        ///< [out], to be added to each number of a row; undefined: 0
  bool transposed = false;  ///< the file has it as [in, out]
};
/// Nothing where the numbers are also read in other ways, where what they multiply is in codes, too, and
/// where codes train.
std::optional<CodedWeight> coded_weight(Call& call, const FileNode& dequantize);

/// The same of codes with a scale a block, [rows, columns] with the blocks along the columns: as
/// ulp::dequantize_weight where that has the form, else as floats that train.
at::Tensor block_weight(Call& call, const FileNode& dequantize);

/// The codes of a quantizer that a Clip makes narrower, from the numbers that were quantized. Undefined for
/// another Clip.
at::Tensor clipped_codes(Call& clip);

/// The type of the codes that a QuantizeLinear gives.
const ElementType& code_type(const Call& call, const FileNode& quantize);

/// Whether the scale or the zero point of a quantizer is computed as the network runs.
bool computed_step(const Call& call, const FileNode& node);

/// Whether a quantizer is computed by plain operators, since no engine has its codes: by a scale that is
/// computed, to or from codes of 16 bits or floats of 8 and 4, or to codes with a scale for each block.
bool is_of_numbers(const Call& call, const FileNode& node);
/// QuantizeLinear and DequantizeLinear so.
void quantize_as_numbers(Call& call);
void dequantize_as_numbers(Call& call);

}  // namespace ulp::exchange::onnx_import
