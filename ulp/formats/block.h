// Block formats: some neighbouring values share one scale. MX (OCP Microscaling Formats specification v1.0)
// and NVFP4.
//
// MX, 32 values: the scale is 2^(floor(log2(amax)) - e), amax the largest magnitude of the block and e the
// exponent of the element format's largest number; elements saturate (sections 5 and 6.3 of the
// specification). NVFP4, 16 values: the scale is an e4m3 number, multiplied by one fp32 number for the whole
// tensor. What the documents leave open is chosen so: a block of zeros has scale code 0 (MX) or the smallest
// number (NVFP4); a block with an infinity or a NaN has the NaN scale and decodes to NaN as a whole; the
// scale of an NVFP4 block never underflows to 0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/formats/convert.h"
#include "ulp/formats/format.h"

namespace ulp::formats {

/// One block format of the table.
struct BlockFormat {
  std::string_view name;
  std::string_view element_name, scale_name;
  int size = 0;               ///< values that share a scale
  bool tensor_scale = false;  ///< a further fp32 scale for the whole tensor

  const Format& element() const { return find(element_name); }
  const Format& scale() const { return find(scale_name); }
  /// Bits a value, its share of the block's scale included: 4.25 for mxfp4.
  double bits_per_value() const { return element().bits() + static_cast<double>(scale().bits()) / size; }
};

/// Every block format, widest first.
ULP_API std::span<const BlockFormat> all_blocks();

/// The block format of that name; an unknown name is an error that lists the known ones.
ULP_API const BlockFormat& find_block(std::string_view name);

/// The table of block formats as text: one header and one row a format. "range in a block" is the largest
/// element over the smallest that is not 0.
ULP_API Table blocks_table();

/// The scale of the whole tensor for formats that have one: its largest finite magnitude / (largest scale *
/// largest element), at least 2^-126; 1 for a tensor of zeros and for formats without it.
ULP_API float tensor_scale(const BlockFormat& format, std::span<const float> values);

/// The code of a block's scale. `tensor_scale` is 1 for formats without it; otherwise it must be finite and
/// above 0.
ULP_API uint8_t block_scale(const BlockFormat& format, std::span<const float> block, float tensor_scale = 1);

/// One quantized block.
struct Block {
  uint8_t scale = 0;           ///< code of the scale format
  std::vector<uint8_t> codes;  ///< one element code a byte
};

/// A block of 1 to size values (a shorter one is the tail of a row). Each value is divided by the scale in
/// fp32 and cast to the element format; `casts` gives the rounding, for stochastic rounding one entry a
/// value, else one for all.
ULP_API Block quantize_block(const BlockFormat& format, std::span<const float> block, float tensor_scale,
                             std::span<const Cast> casts);

/// The values of a block: element * scale in fp32.
ULP_API std::vector<float> dequantize_block(const BlockFormat& format, const Block& block,
                                            float tensor_scale = 1);

}  // namespace ulp::formats
