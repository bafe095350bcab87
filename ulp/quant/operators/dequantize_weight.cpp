// ulp::dequantize_weight by LibTorch's operators.
#include <torch/library.h>
#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/static/op_support.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {
namespace {

using at::Tensor;

Tensor dequantize_weight_kernel(const Tensor& codes, const Tensor& scale,
                                const std::optional<Tensor>& zero_point, int64_t columns,
                                const std::optional<Tensor>& minimum) {
  constexpr const char* kWhere = "quant.dequantize_weight";
  const bool nibbles = codes.scalar_type() == at::kByte;
  const bool grouped = codes.dim() == 3;
  if ((!nibbles && codes.scalar_type() != at::kChar) || (!grouped && (nibbles || codes.dim() != 2))) {
    fail(kWhere,
         "expected codes s8 [rows, columns] or [rows, groups, size], or u8 [rows, groups, size / 2], got ",
         codes.scalar_type(), " ", codes.sizes());
  }
  const Tensor parts = nibbles
                           ? at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, -1).flatten(2)
                           : (grouped ? codes : codes.unsqueeze(1));
  const std::vector<int64_t> expected = {parts.size(0), parts.size(1)};
  if (scale.numel() != parts.size(0) * parts.size(1) ||
      (zero_point && (!nibbles || zero_point->sizes() != at::IntArrayRef(expected)))) {
    fail(kWhere, "expected one scale (and for 4 bits one zero point) for each of ", at::IntArrayRef(expected),
         " parts, got ", scale.sizes());
  }
  if (minimum && (!nibbles || zero_point || minimum->scalar_type() != at::kFloat ||
                  minimum->sizes() != at::IntArrayRef(expected))) {
    fail(kWhere, "expected a minimum f32 ", at::IntArrayRef(expected),
         " of codes of 4 bits without zero points, got ", minimum->scalar_type(), " ", minimum->sizes(),
         nibbles ? "" : " of 8 bits", zero_point ? " beside zero points" : "");
  }
  const int64_t stored = parts.size(1) * parts.size(2);
  if (columns < 1 || columns > stored || columns <= stored - parts.size(2)) {
    fail(kWhere, "expected columns that need all of ", parts.size(1), " groups of ", parts.size(2), ", got ",
         columns);
  }
  Tensor values = parts.to(at::kFloat);
  if (zero_point) {
    values = values - zero_point->to(at::kFloat).unsqueeze(2);
  } else if (nibbles && !minimum) {
    values = values - 8;
  }
  values = values * scale.to(at::kFloat).view({parts.size(0), parts.size(1), 1});
  if (minimum) values = values - minimum->unsqueeze(2);
  return values.flatten(1).narrow(1, 0, columns).contiguous();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "dequantize_weight(Tensor codes, Tensor scale, Tensor? zero_point, int columns, "
      "Tensor? minimum=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("dequantize_weight", dequantize_weight_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("dequantize_weight", torch::CppFunction::makeFallthrough());
}

Tensor dequantize_weight(const Tensor& codes, const Tensor& scale, const std::optional<Tensor>& zero_point,
                         int64_t columns, const std::optional<Tensor>& minimum) {
  static const auto op = find_operator<decltype(dequantize_weight_kernel)>("ulp::dequantize_weight");
  return op.call(codes, scale, zero_point, columns, minimum);
}

Tensor dequantize_weight(const StoredQuantizedWeight& codes) {
  return dequantize_weight(codes.codes, codes.scale, codes.zero_point, codes.columns, codes.minimum);
}

}  // namespace ulp::quant
