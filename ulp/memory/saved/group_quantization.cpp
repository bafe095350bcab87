#include "ulp/memory/saved/group_quantization.h"

#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::memory {
namespace {

/// Groups that are worth a thread, in values.
constexpr int64_t kGroupGrain = 1 << 15;

/// Calls visit with a pointer to the tensor's first value.
template <typename Visit>
void with_values(const at::Tensor& tensor, const Visit& visit) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return visit(tensor.data_ptr<float>());
    case at::kBFloat16:
      return visit(tensor.data_ptr<c10::BFloat16>());
    case at::kHalf:
      return visit(tensor.data_ptr<c10::Half>());
    default:
      fail("memory.encode_groups", "expected fp32, bf16 or fp16, got ", tensor.scalar_type());
  }
}

/// Uniform in [0, 1).
float unit(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

/// Codes of one group. False for a value that is not finite.
template <typename T>
bool encode(const T* values, int64_t first, int64_t count, int bits, formats::RandomKey key, uint8_t* codes,
            float& least, float& step) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const float x = static_cast<float>(values[i]);
    low = std::min(low, x);
    high = std::max(high, x);
    finite &= std::isfinite(x);
  }
  const auto levels = static_cast<float>((1 << bits) - 1);
  least = low;
  step = (high - low) / levels;
  if (!finite || !std::isfinite(step)) return false;
  const float inverse = step > 0 ? 1 / step : 0;
  uint32_t words[formats::kRandomGroup];
  for (int64_t i = 0; i < count; i += formats::kRandomGroup) {
    formats::random_bits_of_group(key, static_cast<uint64_t>((first + i) / formats::kRandomGroup), words);
    for (int64_t l = 0; l < std::min(count - i, formats::kRandomGroup); ++l) {
      const float place = (static_cast<float>(values[i + l]) - low) * inverse + unit(words[l]);
      codes[i + l] = static_cast<uint8_t>(std::min(place, levels));
    }
  }
  return true;
}

}  // namespace

std::optional<GroupCodes> encode_groups(const at::Tensor& dense, int bits, int64_t group,
                                        formats::RandomKey key) {
  const int64_t count = dense.numel(), groups = (count + group - 1) / group;
  GroupCodes made{at::empty({bits == 8 ? count : (count + 1) / 2}, at::kByte),
                  at::empty({groups}, at::kFloat), at::empty({groups}, at::kFloat)};
  auto* codes = made.codes.mutable_data_ptr<uint8_t>();
  auto *least = made.least.mutable_data_ptr<float>(), *step = made.step.mutable_data_ptr<float>();
  std::atomic<bool> finite{true};
  with_values(dense, [&](const auto* values) {
    libtorch::parallel_for(
        0, groups, std::max<int64_t>(1, kGroupGrain / group), [&](int64_t from, int64_t to) {
          std::vector<uint8_t> wide(static_cast<size_t>(group));
          for (int64_t g = from; g < to; ++g) {
            const int64_t first = g * group, size = std::min(group, count - first);
            uint8_t* out = bits == 8 ? codes + first : wide.data();
            if (!encode(values + first, first, size, bits, key, out, least[g], step[g])) finite = false;
            for (int64_t i = 0; bits == 4 && i < size; i += 2) {
              const unsigned high = i + 1 < size ? wide[static_cast<size_t>(i + 1)] : 0;
              codes[(first + i) / 2] = static_cast<uint8_t>(wide[static_cast<size_t>(i)] | (high << 4));
            }
          }
        });
  });
  if (!finite) return std::nullopt;
  return made;
}

void decode_groups(const GroupCodes& made, int bits, int64_t group, at::Tensor& dense) {
  const int64_t count = dense.numel(), groups = made.least.numel();
  const auto* codes = made.codes.const_data_ptr<uint8_t>();
  const auto *least = made.least.const_data_ptr<float>(), *step = made.step.const_data_ptr<float>();
  with_values(dense, [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    libtorch::parallel_for(
        0, groups, std::max<int64_t>(1, kGroupGrain / group), [&](int64_t from, int64_t to) {
          for (int64_t g = from; g < to; ++g) {
            const int64_t first = g * group, last = std::min(first + group, count);
            const float low = least[g], width = step[g];
            for (int64_t i = first; i < last; ++i) {
              const unsigned code = bits == 8 ? codes[i] : (codes[i / 2] >> (i % 2 * 4)) & 15U;
              values[i] = static_cast<T>(low + static_cast<float>(code) * width);
            }
          }
        });
  });
}

}  // namespace ulp::memory
