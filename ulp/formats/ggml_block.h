// Blocks of quantized weights as GGML's files (GGUF) store them: 2.6 to 8.5 bits an element.
//
// The layouts are those of ggml-common.h, the arithmetic that of the Python package `gguf` (quants.py), whose bits these functions give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/base/export.h"

namespace ulp::formats {

/// A type of elements or blocks in GGUF files.
struct GgmlType {
  const char* name;  ///< "Q4_0"
  uint32_t code;     ///< in files
  int64_t elements;  ///< of a block; 1 for plain numbers
  int64_t bytes;     ///< of a block
  bool blocks;       ///< false: plain numbers (F32, F16, BF16)
  bool written;      ///< encode_ggml() knows it
};

/// F32, F16, BF16; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0; Q2_K to Q6_K; IQ4_NL; MXFP4, NVFP4.
ULP_API std::span<const GgmlType> ggml_types();
/// Null for a type that is not in the table.
ULP_API const GgmlType* find_ggml_type(uint32_t code);
ULP_API const GgmlType* find_ggml_type(const char* name);

/// The values of whole blocks, each rounded to float32 as gguf does: Q4_0 d (q - 8), Q5_0 d (q - 16), Q4_1 and Q5_1 d q + m, Q8_0 d q; Q2_K,
/// Q4_K and Q5_K d sc q - dmin m; Q3_K d sc (q - 4), Q6_K d sc (q - 32); IQ4_NL d times one of 16 numbers; MXFP4 and NVFP4 the scale times a
/// number of e2m1. Of NVFP4, gguf multiplies by the tensor's own scale elsewhere: files have it as a tensor of its own.
/// `blocks` has values.size() / elements blocks. Throws Error for plain numbers and for sizes that do not fit.
ULP_API void decode_ggml(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> values);

/// Blocks of the values: Q8_0 with d = max |x| / 127, rounded half away from zero; Q4_0 with d = (the x of the largest magnitude) / -8, rounded
/// half up. Throws Error for another type, for sizes that do not fit, for values that are not finite, and for scales that fp16
/// cannot hold.
ULP_API void encode_ggml(const GgmlType& type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace ulp::formats
