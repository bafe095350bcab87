// ulp::unpack_signs: the weights of binary layers from one bit each.
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/quant/operators/binary_ops.h"
#include "ulp/quant/static/op_support.h"

namespace ulp::quant {
namespace {

using at::Tensor;

/// u8 [8]: the place of each bit in its byte.
Tensor places(const Tensor& like) {
  return at::arange(8, like.options().dtype(at::kByte));
}

Tensor unpack_signs_kernel(const Tensor& bits, at::IntArrayRef sizes) {
  constexpr const char* kWhere = "quant.unpack_signs";
  if (sizes.size() < 2) fail(kWhere, "expected sizes [O, C, ...], got ", sizes);
  std::vector<int64_t> expected = {sizes[0]};
  expected.insert(expected.end(), sizes.begin() + 2, sizes.end());
  expected.push_back((sizes[1] + 7) / 8);
  if (bits.scalar_type() != at::kByte || bits.sizes() != at::IntArrayRef(expected)) {
    fail(kWhere, "expected bits u8 ", at::IntArrayRef(expected), " for a weight ", sizes, ", got ",
         bits.scalar_type(), ' ', bits.sizes());
  }
  const Tensor single = at::bitwise_right_shift(bits.unsqueeze(-1), places(bits)).bitwise_and(1).flatten(-2);
  return single.narrow(-1, 0, sizes[1]).movedim(-1, 1).to(at::kFloat).mul(-2).add(1).contiguous();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("unpack_signs(Tensor bits, int[] sizes) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("unpack_signs", unpack_signs_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("unpack_signs", torch::CppFunction::makeFallthrough());
}

Tensor unpack_signs(const Tensor& bits, at::IntArrayRef sizes) {
  static const auto op = find_operator<decltype(unpack_signs_kernel)>("ulp::unpack_signs");
  return op.call(bits, sizes);
}

Tensor pack_signs(const Tensor& weight) {
  const at::NoGradGuard no_grad;
  if (weight.dim() < 2) fail("quant.pack_signs", "expected a weight [O, C, ...], got ", weight.sizes());
  const Tensor negative = weight.ge(0).logical_not().movedim(1, -1).to(at::kByte);
  const int64_t channels = weight.size(1), bytes = (channels + 7) / 8;
  const Tensor padded = at::constant_pad_nd(negative, {0, bytes * 8 - channels}, 0);
  const Tensor single = at::bitwise_left_shift(padded.unflatten(-1, {bytes, 8}), places(weight));
  return single.sum(-1).to(at::kByte).contiguous();
}

}  // namespace ulp::quant
