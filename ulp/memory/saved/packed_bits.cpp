#include "ulp/memory/saved/packed_bits.h"

#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::memory {
namespace {

/// Bytes of a mask that are worth a thread.
constexpr int64_t kBitGrain = 1 << 12;

/// Sets bit i of the result where test(i).
template <typename Test>
at::Tensor pack(int64_t count, const Test& test) {
  at::Tensor bits = at::empty({(count + 7) / 8}, at::kByte);
  auto* out = bits.mutable_data_ptr<uint8_t>();
  libtorch::parallel_for(0, bits.numel(), kBitGrain, [&](int64_t from, int64_t to) {
    for (int64_t byte = from; byte < to; ++byte) {
      const int64_t size = std::min<int64_t>(8, count - 8 * byte);
      unsigned packed = 0;
      for (int64_t l = 0; l < size; ++l) packed |= static_cast<unsigned>(test(8 * byte + l)) << l;
      out[byte] = static_cast<uint8_t>(packed);
    }
  });
  return bits;
}

template <typename Pattern>
std::optional<BitCodes> encode(const Pattern* values, int64_t count) {
  const Pattern* first = std::find_if(values, values + count, [](Pattern p) { return p != 0; });
  const Pattern one = first == values + count ? 0 : *first;
  std::atomic<bool> two{true};
  at::Tensor bits = pack(count, [&](int64_t i) {
    if (values[i] != 0 && values[i] != one) two.store(false, std::memory_order_relaxed);
    return values[i] != 0;
  });
  if (!two) return std::nullopt;
  return BitCodes{std::move(bits), 0, one};
}

template <typename Pattern>
void decode(const BitCodes& codes, Pattern* values, int64_t count) {
  const auto* bits = codes.bits.const_data_ptr<uint8_t>();
  const auto zero = static_cast<Pattern>(codes.zero), one = static_cast<Pattern>(codes.one);
  libtorch::parallel_for(0, count, 8 * kBitGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) values[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? one : zero;
  });
}

uint32_t pattern_of(double value, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case at::kBFloat16:
      return c10::BFloat16(static_cast<float>(value)).x;
    case at::kHalf:
      return c10::Half(static_cast<float>(value)).x;
    default:
      fail("memory.encode_range", "expected fp32, bf16 or fp16, got ", dtype);
  }
}

template <typename T>
at::Tensor in_range(const T* values, int64_t count, double low, double high) {
  const auto least = static_cast<float>(low), most = static_cast<float>(high);
  return pack(count, [=](int64_t i) {
    const float x = static_cast<float>(values[i]);
    return !(x <= least) && !(x >= most);
  });
}

}  // namespace

std::optional<BitCodes> encode_two_values(const at::Tensor& dense) {
  switch (dense.itemsize()) {
    case 1:
      return encode(static_cast<const uint8_t*>(dense.const_data_ptr()), dense.numel());
    case 2:
      return encode(static_cast<const uint16_t*>(dense.const_data_ptr()), dense.numel());
    case 4:
      return encode(static_cast<const uint32_t*>(dense.const_data_ptr()), dense.numel());
    default:
      return std::nullopt;
  }
}

BitCodes encode_range(const at::Tensor& dense, double low, double high, double inside) {
  const at::ScalarType dtype = dense.scalar_type();
  BitCodes codes{{}, pattern_of(low, dtype), pattern_of(inside, dtype)};
  const int64_t count = dense.numel();
  if (dtype == at::kFloat) codes.bits = in_range(dense.const_data_ptr<float>(), count, low, high);
  if (dtype == at::kBFloat16) codes.bits = in_range(dense.const_data_ptr<c10::BFloat16>(), count, low, high);
  if (dtype == at::kHalf) codes.bits = in_range(dense.const_data_ptr<c10::Half>(), count, low, high);
  return codes;
}

void decode_bits(const BitCodes& codes, at::Tensor& dense) {
  switch (dense.itemsize()) {
    case 1:
      return decode(codes, static_cast<uint8_t*>(dense.mutable_data_ptr()), dense.numel());
    case 2:
      return decode(codes, static_cast<uint16_t*>(dense.mutable_data_ptr()), dense.numel());
    default:
      return decode(codes, static_cast<uint32_t*>(dense.mutable_data_ptr()), dense.numel());
  }
}

}  // namespace ulp::memory
