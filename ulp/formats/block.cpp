#include "ulp/formats/block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ulp/base/error.h"

namespace ulp::formats {

namespace {

// clang-format off
constexpr BlockFormat kBlocks[] = {
    //  name         element       scale         size  tensor scale
    {"mxfp8_e4m3",  "fp8_e4m3fn",  "e8m0",        32},
    {"mxfp8_e5m2",  "fp8_e5m2",    "e8m0",        32},
    {"mxfp6_e2m3",  "fp6_e2m3",    "e8m0",        32},
    {"mxfp6_e3m2",  "fp6_e3m2",    "e8m0",        32},
    {"nvfp4",       "fp4_e2m1",    "fp8_e4m3fn",  16,  true},
    {"mxfp4",       "fp4_e2m1",    "e8m0",        32},
};
// clang-format on

// The largest magnitude; not a number if any value is not finite.
float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (float value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

void check_block(const char* where, const BlockFormat& format, size_t values, float tensor_scale) {
  if (values == 0 || values > static_cast<size_t>(format.size)) {
    fail(where, "expected 1 to ", format.size, " values for ", format.name, ", got ", values);
  }
  if (!std::isfinite(tensor_scale) || tensor_scale <= 0 || (!format.tensor_scale && tensor_scale != 1)) {
    fail(where, "expected a tensor scale that is ", format.tensor_scale ? "finite and above 0" : "1", " for ",
         format.name, ", got ", tensor_scale);
  }
}

float scale_value(const BlockFormat& format, uint8_t code, float tensor_scale) {
  return static_cast<float>(decode(format.scale(), code)) * tensor_scale;
}

}  // namespace

std::span<const BlockFormat> all_blocks() {
  return kBlocks;
}

const BlockFormat& find_block(std::string_view name) {
  std::string known;
  for (const BlockFormat& format : kBlocks) {
    if (name == format.name) return format;
    known.append(known.empty() ? "" : ", ").append(format.name);
  }
  fail("formats.find_block", "expected one of ", known, ", got '", name, "'");
}

Table blocks_table() {
  Table table{{"format", "values per scale", "element", "scale", "tensor scale", "bits per value",
               "largest element", "range in a block"},
              {}};
  for (const BlockFormat& format : kBlocks) {
    const Format& element = format.element();
    const double subnormal = element.smallest_subnormal();
    const double smallest = subnormal > 0 ? subnormal : element.smallest_normal();
    table.rows.push_back({std::string(format.name), std::to_string(format.size), std::string(element.name),
                          std::string(format.scale().name), format.tensor_scale ? "fp32" : "-",
                          table_number(format.bits_per_value()), table_number(element.max()),
                          table_number(element.max() / smallest)});
  }
  return table;
}

float tensor_scale(const BlockFormat& format, std::span<const float> values) {
  if (!format.tensor_scale) return 1;
  float largest = 0;
  for (float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  if (largest == 0) return 1;
  const auto range = static_cast<float>(format.scale().max() * format.element().max());
  return std::max(largest / range, std::numeric_limits<float>::min());
}

uint8_t block_scale(const BlockFormat& format, std::span<const float> block, float tensor_scale) {
  check_block("formats.block_scale", format, block.size(), tensor_scale);
  const Format& scale = format.scale();
  const float largest = largest_magnitude(block);
  if (std::isnan(largest)) return static_cast<uint8_t>(scale.nan_code());
  if (format.tensor_scale) {
    const float wanted = largest / static_cast<float>(format.element().max()) / tensor_scale;
    return static_cast<uint8_t>(std::max<uint64_t>(1, encode(scale, wanted)));
  }
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest) - std::ilogb(format.element().max());
  return static_cast<uint8_t>(encode(scale, std::ldexp(1.0, exponent)));
}

Block quantize_block(const BlockFormat& format, std::span<const float> block, float tensor_scale,
                     std::span<const Cast> casts) {
  if (casts.size() != 1 && casts.size() != block.size()) {
    fail("formats.quantize_block", "expected 1 or ", block.size(), " casts, got ", casts.size());
  }
  Block out{block_scale(format, block, tensor_scale), {}};
  const float scale = scale_value(format, out.scale, tensor_scale);
  for (size_t i = 0; i < block.size(); ++i) {
    Cast cast = casts[casts.size() == 1 ? 0 : i];
    if (!cast.overflow) cast.overflow = Overflow::saturate;
    const float scaled = std::isnan(scale) ? 0 : block[i] / scale;
    out.codes.push_back(static_cast<uint8_t>(encode(format.element(), scaled, cast)));
  }
  return out;
}

std::vector<float> dequantize_block(const BlockFormat& format, const Block& block, float tensor_scale) {
  check_block("formats.dequantize_block", format, block.codes.size(), tensor_scale);
  const float scale = scale_value(format, block.scale, tensor_scale);
  std::vector<float> values;
  for (uint8_t code : block.codes)
    values.push_back(static_cast<float>(decode(format.element(), code)) * scale);
  return values;
}

}  // namespace ulp::formats
