#include "ulp/formats/ggml_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/formats/convert.h"

namespace ulp::formats {

namespace {

constexpr int64_t kSmall = 32, kLarge = 256;  // elements of a block
constexpr size_t kScaleBytes = 12;            // of Q4_K: eight scales and eight minima of 6 bits

constexpr std::array<GgmlType, 16> kTypes = {{{"F32", 0, 1, 4, false, false},
                                              {"F16", 1, 1, 2, false, false},
                                              {"Q4_0", 2, kSmall, 18, true, true},
                                              {"Q4_1", 3, kSmall, 20, true, false},
                                              {"Q5_0", 6, kSmall, 22, true, false},
                                              {"Q5_1", 7, kSmall, 24, true, false},
                                              {"Q8_0", 8, kSmall, 34, true, true},
                                              {"Q2_K", 10, kLarge, 84, true, false},
                                              {"Q3_K", 11, kLarge, 110, true, false},
                                              {"Q4_K", 12, kLarge, 144, true, false},
                                              {"Q5_K", 13, kLarge, 176, true, false},
                                              {"Q6_K", 14, kLarge, 210, true, false},
                                              {"IQ4_NL", 20, kSmall, 18, true, false},
                                              {"BF16", 30, 1, 2, false, false},
                                              {"MXFP4", 39, kSmall, 17, true, false},
                                              {"NVFP4", 40, 64, 36, true, false}}};

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

/// The code of 4 bits of element i of 32: the first half of them in the low bits of 16 bytes.
int nibble_at(const std::byte* codes, size_t i, size_t half_of_them = kSmall / 2) {
  const int both = byte_at(codes, i % half_of_them);
  return i < half_of_them ? both & 15 : both >> 4;
}

/// d, and m for the minimum of Q4_1 and Q5_1.
void decode_q4_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), least = half_at(block, 2);
  for (size_t i = 0; i < kSmall; ++i) {
    const float scaled = d * static_cast<float>(nibble_at(block + 4, i));
    values[i] = scaled + least;
  }
}

/// 4 low bits behind a fifth one: bit i of 4 bytes.
int code_of_5(const std::byte* high, size_t i) {
  return nibble_at(high + 4, i) | (byte_at(high, i / 8) >> (i % 8) & 1) << 4;
}

void decode_q5_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kSmall; ++i) values[i] = d * static_cast<float>(code_of_5(block + 2, i) - 16);
}

void decode_q5_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), least = half_at(block, 2);
  for (size_t i = 0; i < kSmall; ++i) {
    const float scaled = d * static_cast<float>(code_of_5(block + 4, i));
    values[i] = scaled + least;
  }
}

/// Sixteen bytes with a scale and a minimum in 4 bits for each 16 of 256 codes of 2 bits, d, dmin. Each 32 bytes hold four times 32 codes.
void decode_q2_k(const std::byte* block, float* values) {
  constexpr size_t kParts = 16;
  const std::byte* codes = block + kParts;
  const float d = half_at(codes, kLarge / 4), least = half_at(codes, kLarge / 4 + 2);
  for (size_t i = 0; i < kLarge; ++i) {
    const int both = byte_at(block, i / kParts);
    const float step = d * static_cast<float>(both & 15), offset = least * static_cast<float>(both >> 4);
    const int code = byte_at(codes, i / 128 * kSmall + i % kSmall) >> (i % 128 / kSmall * 2) & 3;
    const float scaled = step * static_cast<float>(code);
    values[i] = scaled - offset;
  }
}

/// A third bit of 256 codes, where 0 takes 4 off; 2 low bits as in Q2_K; sixteen scales of 6 bits around 32, whose low 4 are in 8 bytes and
/// whose high 2 in 4; d.
void decode_q3_k(const std::byte* block, float* values) {
  const std::byte *codes = block + kLarge / 8, *scales = codes + kLarge / 4;
  const float d = half_at(scales, kScaleBytes);
  for (size_t i = 0; i < kLarge; ++i) {
    const size_t part = i / 16;
    const int low4 = byte_at(scales, part % 8) >> (part / 8 * 4) & 15;
    const int high2 = byte_at(scales, 8 + part % 4) >> (part / 4 * 2) & 3;
    const float step = d * static_cast<float>((low4 | high2 << 4) - 32);
    const int code = byte_at(codes, i / 128 * kSmall + i % kSmall) >> (i % 128 / kSmall * 2) & 3;
    const bool third = (byte_at(block, i % kSmall) >> (i / kSmall) & 1) != 0;
    values[i] = step * static_cast<float>(third ? code : code - 4);
  }
}

/// Of Q4_K and Q5_K: the scale and the minimum of one of eight parts. Four scales are in the low 6 bits of bytes 0 to 3 and four minima in
/// those of 4 to 7; of the other four, 4 bits are in bytes 8 to 11 and 2 in the high bits of bytes 0 to 7.
struct StepAndOffset {
  float step, offset;
};
StepAndOffset part_of_k(const std::byte* scales, size_t part, float d, float least) {
  const size_t i = part % 4;
  const int first = byte_at(scales, i), second = byte_at(scales, 4 + i), rest = byte_at(scales, 8 + i);
  const int scale = part < 4 ? first & 63 : (rest & 15) | (first >> 2 & 48);
  const int minimum = part < 4 ? second & 63 : rest >> 4 | (second >> 2 & 48);
  return {d * static_cast<float>(scale), least * static_cast<float>(minimum)};
}

/// d, dmin, the scales, and 4 bits of 256 codes. `high`: a fifth bit of each, or none.
void decode_with_minima(const std::byte* block, const std::byte* high, const std::byte* codes,
                        float* values) {
  const float d = half_at(block, 0), least = half_at(block, 2);
  for (size_t part = 0; part < 8; ++part) {
    const auto [step, offset] = part_of_k(block + 4, part, d, least);
    for (size_t j = 0; j < kSmall; ++j) {
      int code = byte_at(codes, part / 2 * kSmall + j) >> (part % 2 * 4) & 15;
      if (high != nullptr) code |= (byte_at(high, j) >> part & 1) << 4;
      const float scaled = step * static_cast<float>(code);
      values[part * kSmall + j] = scaled - offset;
    }
  }
}

void decode_q4_k(const std::byte* block, float* values) {
  decode_with_minima(block, nullptr, block + 4 + kScaleBytes, values);
}

void decode_q5_k(const std::byte* block, float* values) {
  const std::byte* high = block + 4 + kScaleBytes;
  decode_with_minima(block, high, high + kLarge / 8, values);
}

/// Codes are places in a list of numbers that lie closer around 0.
void decode_iq4_nl(const std::byte* block, float* values) {
  constexpr std::array<float, 16> kNumbers = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kSmall; ++i) values[i] = d * kNumbers[static_cast<size_t>(nibble_at(block + 2, i))];
}

/// Twice the number of a code of e2m1. A zero has no sign.
float twice_e2m1(int code) {
  constexpr std::array<float, 8> kTwice = {0, 1, 2, 3, 4, 6, 8, 12};
  const float size = kTwice[static_cast<size_t>(code & 7)];
  return (code & 8) != 0 && size != 0 ? -size : size;
}

/// The power of two by its exponent, and codes of e2m1.
void decode_mxfp4(const std::byte* block, float* values) {
  const float half_of_scale = std::ldexp(1.0F, byte_at(block, 0) - 128);
  for (size_t i = 0; i < kSmall; ++i) values[i] = half_of_scale * twice_e2m1(nibble_at(block + 1, i));
}

/// Four scales of e4m3 without a sign, each for 16 codes of e2m1. The code of its NaN is a zero.
void decode_nvfp4(const std::byte* block, float* values) {
  static const Format& e4m3 = find("fp8_e4m3fn");
  constexpr size_t kPart = 16;
  for (size_t part = 0; part < 4; ++part) {
    const int code = byte_at(block, part);
    const double scale = code == 127 ? 0 : decode(e4m3, static_cast<uint64_t>(code & 127));
    const float half_of_scale = static_cast<float>(scale) / 2;
    for (size_t i = 0; i < kPart; ++i)
      values[part * kPart + i] =
          half_of_scale * twice_e2m1(nibble_at(block + 4 + part * kPart / 2, i, kPart / 2));
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
  using Decoder = void (*)(const std::byte*, float*);
  static constexpr std::pair<std::string_view, Decoder> kDecoders[] = {
      {"Q4_0", decode_q4_0},  {"Q4_1", decode_q4_1}, {"Q5_0", decode_q5_0},     {"Q5_1", decode_q5_1},
      {"Q8_0", decode_q8_0},  {"Q2_K", decode_q2_k}, {"Q3_K", decode_q3_k},     {"Q4_K", decode_q4_k},
      {"Q5_K", decode_q5_k},  {"Q6_K", decode_q6_k}, {"IQ4_NL", decode_iq4_nl}, {"MXFP4", decode_mxfp4},
      {"NVFP4", decode_nvfp4}};
  const auto* found =
      std::ranges::find(kDecoders, std::string_view(type.name), &std::pair<std::string_view, Decoder>::first);
  if (found == std::end(kDecoders)) fail(kWhere, "expected a type that is decoded, got ", type.name);
  const Decoder decoder = found->second;
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
