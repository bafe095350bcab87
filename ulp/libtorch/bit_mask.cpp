#include "ulp/libtorch/bit_mask.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <bit>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::libtorch {
namespace {

constexpr int64_t kGrain = 1 << 13;  // bytes of a mask that are worth a thread

int64_t product(at::IntArrayRef sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return elements;
}

bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0; expected *= sizes[d]) {
    if (sizes[d] != 1 && strides[d] != expected) return product(sizes) == 0;
  }
  return true;
}

/// The bits of `elements` bools that lie one behind the other.
at::Tensor pack(const bool* values, int64_t elements) {
  at::Tensor bits = at::empty({mask_bytes(elements)}, at::kByte);
  auto* out = bits.mutable_data_ptr<uint8_t>();
  parallel_for(0, bits.numel(), kGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t count = std::min<int64_t>(8, elements - 8 * i);
      unsigned byte = 0;
      for (int64_t l = 0; l < count; ++l) byte |= static_cast<unsigned>(values[8 * i + l]) << l;
      out[i] = static_cast<uint8_t>(byte);
    }
  });
  return bits;
}

}  // namespace

at::Tensor pack_mask(const at::Tensor& keep) {
  if (!keep.defined() || keep.scalar_type() != at::kBool) {
    fail("libtorch.pack_mask", "expected a mask of bools, got ",
         keep.defined() ? std::string(keep.dtype().name()) : "no tensor");
  }
  const at::Tensor dense = keep.detach().to(at::kCPU).contiguous();
  return pack(dense.const_data_ptr<bool>(), dense.numel());
}

at::Tensor unpack_mask(const at::Tensor& bits, at::IntArrayRef sizes) {
  const int64_t elements = product(sizes);
  check_mask("libtorch.unpack_mask", "a mask", bits, elements);
  at::Tensor keep = at::empty(sizes, at::kBool);
  const auto* in = bits.const_data_ptr<uint8_t>();
  bool* out = keep.mutable_data_ptr<bool>();
  parallel_for(0, bits.numel(), kGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t count = std::min<int64_t>(8, elements - 8 * i);
      for (int64_t l = 0; l < count; ++l) out[8 * i + l] = (in[i] >> l & 1) != 0;
    }
  });
  return keep;
}

int64_t count_kept(const at::Tensor& bits) {
  check_mask("libtorch.count_kept", "a mask", bits, bits.defined() ? 8 * bits.numel() : 0);
  const auto* in = bits.const_data_ptr<uint8_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < bits.numel(); ++i) count += std::popcount(in[i]);
  return count;
}

void check_mask(const char* where, const char* what, const at::Tensor& bits, int64_t elements) {
  if (!bits.defined() || bits.scalar_type() != at::kByte || bits.dim() != 1 || !bits.is_contiguous() ||
      !bits.is_cpu()) {
    if (!bits.defined()) fail(where, "expected ", what, " of bits in uint8 on the CPU, got no tensor");
    fail(where, "expected ", what, " of bits in one dense row of uint8 on the CPU, got ", bits.dtype(),
         " of sizes ", bits.sizes(), " on ", bits.device());
  }
  if (bits.numel() != mask_bytes(elements)) {
    fail(where, "expected ", what, " of ", mask_bytes(elements), " bytes for ", elements, " elements, got ",
         bits.numel());
  }
  if (elements % 8 == 0) return;
  const unsigned spare = bits.const_data_ptr<uint8_t>()[bits.numel() - 1] >> (elements % 8);
  if (spare != 0)
    fail(where, "expected ", what, " without bits behind its ", elements, " elements, got some");
}

at::Tensor mask_in_memory_order(const at::Tensor& bits, at::IntArrayRef sizes, at::IntArrayRef strides) {
  check_mask("libtorch.mask_in_memory_order", "a mask", bits, product(sizes));
  if (is_row_major(sizes, strides)) return bits;
  at::Tensor keep = at::empty_strided(sizes, strides, at::kBool);
  keep.copy_(unpack_mask(bits, sizes));
  return pack(keep.const_data_ptr<bool>(), keep.numel());
}

}  // namespace ulp::libtorch
