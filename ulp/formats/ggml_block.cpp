#include "ulp/formats/ggml_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/formats/convert.h"

namespace ulp::formats {

namespace {

constexpr int64_t kSmall = 32, kLarge = 256;  // elements of a block
constexpr size_t kScaleBytes = 12;            // of Q4_K: eight scales and eight minima of 6 bits

constexpr std::array<GgmlType, 7> kTypes = {{{"F32", 0, 1, 4, false, false},
                                             {"F16", 1, 1, 2, false, false},
                                             {"Q4_0", 2, kSmall, 18, true, true},
                                             {"Q8_0", 8, kSmall, 34, true, true},
                                             {"Q4_K", 12, kLarge, 144, true, false},
                                             {"Q6_K", 14, kLarge, 210, true, false},
                                             {"BF16", 30, 1, 2, false, false}}};

const Format& half() {
  static const Format& format = find("fp16");
  return format;
}

uint8_t byte_at(const std::byte* block, size_t at) {
  return std::to_integer<uint8_t>(block[at]);
}

float half_at(const std::byte* block, size_t at) {
  return static_cast<float>(
      decode(half(), byte_at(block, at) | static_cast<uint64_t>(byte_at(block, at + 1)) << 8));
}

void decode_q4_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kSmall / 2; ++i) {
    const int both = byte_at(block, 2 + i);
    values[i] = d * static_cast<float>((both & 15) - 8);
    values[i + kSmall / 2] = d * static_cast<float>((both >> 4) - 8);
  }
}

void decode_q8_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kSmall; ++i)
    values[i] = static_cast<float>(static_cast<int8_t>(byte_at(block, 2 + i))) * d;
}

/// Four scales in the low 6 bits of bytes 0 to 3 and four minima in those of 4 to 7; of the other four, 4 bits in bytes 8 to 11 and 2 in
/// the high bits of bytes 0 to 7.
void decode_q4_k(const std::byte* block, float* values) {
  const float d = half_at(block, 0), least = half_at(block, 2);
  const std::byte* scales = block + 4;
  const std::byte* codes = scales + kScaleBytes;
  for (size_t part = 0; part < 8; ++part) {
    const size_t i = part % 4;
    const int first = byte_at(scales, i), second = byte_at(scales, 4 + i), rest = byte_at(scales, 8 + i);
    const int scale = part < 4 ? first & 63 : (rest & 15) | (first >> 2 & 48);
    const int minimum = part < 4 ? second & 63 : rest >> 4 | (second >> 2 & 48);
    const float step = d * static_cast<float>(scale), offset = least * static_cast<float>(minimum);
    for (size_t j = 0; j < kSmall; ++j) {
      const int code = byte_at(codes, part / 2 * kSmall + j) >> (part % 2 * 4) & 15;
      const float scaled = step * static_cast<float>(code);
      values[part * kSmall + j] = scaled - offset;
    }
  }
}

/// Low 4 bits of 256 codes, then high 2 bits, then sixteen scales, then d. Each half of the block has its own 64 and 32 bytes.
void decode_q6_k(const std::byte* block, float* values) {
  const std::byte *low = block, *high = low + kLarge / 2, *scales = high + kLarge / 4;
  const float d = half_at(scales, 16);
  for (size_t i = 0; i < kLarge; ++i) {
    const size_t side = i / 128, within = i % 128, row = within / 32, column = within % 32;
    const int low4 = byte_at(low, side * 64 + row % 2 * 32 + column) >> (row / 2 * 4) & 15;
    const int high2 = byte_at(high, side * 32 + column) >> (row * 2) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(byte_at(scales, i / 16)));
    values[i] = step * static_cast<float>((low4 | high2 << 4) - 32);
  }
}

void put_half(const char* name, float d, std::byte* block) {
  const uint64_t code = encode(half(), d);
  if (!std::isfinite(decode(half(), code)))
    fail("formats.encode_ggml", "expected values whose scale fp16 holds for ", name, ", got the scale ", d);
  block[0] = static_cast<std::byte>(code & 255);
  block[1] = static_cast<std::byte>(code >> 8);
}

/// 1 / d, 0 for values that are all zero or so small that their scale is none.
float inverse(float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}

void encode_q8_0(const float* values, std::byte* block) {
  float most = 0;
  for (size_t i = 0; i < kSmall; ++i) most = std::max(most, std::fabs(values[i]));
  const float d = most / 127, inverse_d = inverse(d);
  put_half("Q8_0", d, block);
  for (size_t i = 0; i < kSmall; ++i) {
    const float scaled = values[i] * inverse_d, size = std::fabs(scaled), whole = std::floor(size);
    const float rounded = whole + std::floor(2 * (size - whole));
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(scaled < 0 ? -rounded : rounded));
  }
}

void encode_q4_0(const float* values, std::byte* block) {
  float largest = values[0];
  for (size_t i = 1; i < kSmall; ++i)
    if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
  const float d = largest / -8, inverse_d = inverse(d);
  put_half("Q4_0", d, block);
  const auto code = [&](float value) {
    const float scaled = value * inverse_d;
    return std::clamp(static_cast<int>(scaled + 8.5F), 0, 15);
  };
  for (size_t i = 0; i < kSmall / 2; ++i)
    block[2 + i] = static_cast<std::byte>(code(values[i]) | code(values[i + kSmall / 2]) << 4);
}

void check_sizes(const char* where, const GgmlType& type, size_t values, size_t bytes) {
  const auto elements = static_cast<size_t>(type.elements);
  if (values % elements == 0 && bytes == values / elements * static_cast<size_t>(type.bytes)) return;
  fail(where, "expected blocks of ", type.elements, " values in ", type.bytes, " bytes for ", type.name,
       ", got ", values, " values in ", bytes, " bytes");
}

}  // namespace

std::span<const GgmlType> ggml_types() {
  return kTypes;
}

const GgmlType* find_ggml_type(uint32_t code) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const GgmlType& type) { return type.code == code; });
  return found == kTypes.end() ? nullptr : &*found;
}

const GgmlType* find_ggml_type(const char* name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const GgmlType& type) { return std::string_view(type.name) == name; });
  return found == kTypes.end() ? nullptr : &*found;
}

void decode_ggml(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> values) {
  constexpr const char* kWhere = "formats.decode_ggml";
  if (!type.blocks) fail(kWhere, "expected a type of blocks, got ", type.name);
  check_sizes(kWhere, type, values.size(), blocks.size());
  const std::string_view name = type.name;
  const auto decoder = name == "Q4_0"   ? decode_q4_0
                       : name == "Q8_0" ? decode_q8_0
                       : name == "Q4_K" ? decode_q4_k
                                        : decode_q6_k;
  const size_t count = values.size() / static_cast<size_t>(type.elements);
  for (size_t i = 0; i < count; ++i)
    decoder(blocks.data() + i * static_cast<size_t>(type.bytes),
            values.data() + i * static_cast<size_t>(type.elements));
}

void encode_ggml(const GgmlType& type, std::span<const float> values, std::span<std::byte> blocks) {
  constexpr const char* kWhere = "formats.encode_ggml";
  if (!type.written) fail(kWhere, "expected Q4_0 or Q8_0, got ", type.name);
  check_sizes(kWhere, type, values.size(), blocks.size());
  for (const float value : values)
    if (!std::isfinite(value)) fail(kWhere, "expected finite values for ", type.name, ", got ", value);
  const auto encoder = std::string_view(type.name) == "Q4_0" ? encode_q4_0 : encode_q8_0;
  const size_t count = values.size() / static_cast<size_t>(type.elements);
  for (size_t i = 0; i < count; ++i)
    encoder(values.data() + i * static_cast<size_t>(type.elements),
            blocks.data() + i * static_cast<size_t>(type.bytes));
}

}  // namespace ulp::formats
