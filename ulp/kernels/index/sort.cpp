#include "ulp/kernels/index/sort.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

/// Elements that are worth a task.
constexpr int64_t kTask = 4096;

/// A number in the same order as the element; NaNs are one number above all others.
uint32_t key_of(uint8_t code) {
  return code;
}
uint32_t key_of(float value) {
  constexpr uint32_t kSign = 0x80000000U, kInfinity = 0x7f800000U;
  uint32_t bits = float_to_bits(value);
  if ((bits & ~kSign) > kInfinity) return ~uint32_t{0};
  if (bits == kSign) bits = 0;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
uint32_t key_of(uint16_t bf16) {
  return key_of(bf16_to_float(bf16));
}

/// The smallest `kept` in order at the beginning.
void sort_first(uint64_t* keys, int64_t size, int64_t kept) {
  constexpr int64_t kFew = 64;
  if (kept * kFew <= size) return std::partial_sort(keys, keys + kept, keys + size);
  if (kept < size) std::nth_element(keys, keys + kept - 1, keys + size);
  std::sort(keys, keys + kept);
}

}  // namespace

Sort::Sort(const SortShape& shape) : shape_(shape) {
  if (shape.type != DataType::f32 && shape.type != DataType::bf16 && shape.type != DataType::u8) {
    fail("kernels.Sort", "expected f32, bf16 or u8, got ", to_string(shape.type));
  }
}

size_t Sort::workspace_bytes(int workers) const {
  constexpr size_t kLine = 64;
  const size_t keys = static_cast<size_t>(shape_.size) * sizeof(uint64_t);
  return static_cast<size_t>(workers) * ((keys + kLine - 1) / kLine * kLine);
}

/// The element's order and its place in one number: no two are equal, so that any sort is stable.
template <typename T>
void Sort::line(const T* x, void* y, uint64_t* keys) const {
  const uint32_t turned = shape_.descending ? ~uint32_t{0} : 0;
  for (int64_t i = 0; i < shape_.size; ++i) {
    keys[i] = uint64_t{key_of(x[i * shape_.inner]) ^ turned} << 32 | static_cast<uint64_t>(i);
  }
  sort_first(keys, shape_.size, shape_.kept);
  for (int64_t i = 0; i < shape_.kept; ++i) {
    const auto place = static_cast<int64_t>(keys[i] & 0xffffffffU);
    if (shape_.places) {
      static_cast<int64_t*>(y)[i * shape_.inner] = place;
    } else {
      static_cast<T*>(y)[i * shape_.inner] = x[place * shape_.inner];
    }
  }
}

template <typename T>
void Sort::run_typed(const T* x, void* y, int64_t outer, void* workspace, const Parallel& parallel) const {
  const int64_t lines = outer * shape_.inner, each = std::max<int64_t>(1, kTask / shape_.size);
  const size_t scratch = workspace_bytes(1);
  const int64_t element = shape_.places ? int64_t{sizeof(int64_t)} : int64_t{sizeof(T)};
  parallel.run((lines + each - 1) / each, [&](int64_t task, int worker) {
    auto* keys = reinterpret_cast<uint64_t*>(static_cast<std::byte*>(workspace) +
                                             static_cast<size_t>(worker) * scratch);
    for (int64_t at = task * each; at < std::min(lines, (task + 1) * each); ++at) {
      const int64_t block = at / shape_.inner, column = at % shape_.inner;
      const int64_t to = block * shape_.kept * shape_.inner + column;
      line(x + block * shape_.size * shape_.inner + column, static_cast<std::byte*>(y) + to * element, keys);
    }
  });
}

void Sort::run(const void* x, void* y, int64_t outer, void* workspace, const Parallel& parallel) const {
  switch (shape_.type) {
    case DataType::u8:
      return run_typed(static_cast<const uint8_t*>(x), y, outer, workspace, parallel);
    case DataType::bf16:
      return run_typed(static_cast<const uint16_t*>(x), y, outer, workspace, parallel);
    default:
      return run_typed(static_cast<const float*>(x), y, outer, workspace, parallel);
  }
}

}  // namespace ulp::kernels
