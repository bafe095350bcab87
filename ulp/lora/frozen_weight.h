// A weight matrix that does not train, in the numbers of a LoraBase.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/lora/lora_options.h"

namespace ulp::lora {

/// Parts of a matrix [rows, columns], as ulp::frozen_linear takes them:
///
///   | format | parts |
///   |--------|-------|
///   | bf16   | bf16 [rows, columns] |
///   | int8   | s8 [rows, columns], f32 [rows] |
///   | int4   | u8 [rows, groups, size / 2] and f32 [rows, groups], as ulp::dequantize_weight has them |
///   | nf4    | codes and absmax (nf4.h); with double quantization codes, absmax, scale_absmax, offset |
struct ULP_API FrozenWeight {
  LoraBase format = LoraBase::bf16;
  std::vector<at::Tensor> parts;
  int64_t rows = 0, columns = 0;

  /// Throws ulp::Error for parts of other types or sizes, which a file may have.
  void check() const;
  int64_t bytes() const;  ///< of the parts
};

/// Rounds float32 values [rows, columns] to `format`, with LoraOptions::group and double_quant. fp32 is none
/// of the formats. Throws ulp::Error naming the weight for values that are not finite, but for bf16.
ULP_API FrozenWeight freeze_weight(const std::string& name, const at::Tensor& values, LoraBase format,
                                   const LoraOptions& options);

/// The matrix [rows, columns] in `dtype`: each value in float32, then rounded to it.
ULP_API at::Tensor dequantize(const FrozenWeight& weight, at::ScalarType dtype = at::kFloat);

}  // namespace ulp::lora
