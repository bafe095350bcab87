// The dispatcher operators of binary and ternary networks, registered under the namespace `ulp`:
//
//   ulp::binarize(Tensor x, str gradient) -> Tensor
//   ulp::ternarize(Tensor weight, float ratio) -> Tensor
//   ulp::unpack_signs(Tensor bits, int[] sizes) -> Tensor
//
// Signs are +1 and -1 in the dtype of x; the sign of 0 and -0 is +1, that of NaN -1.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::quant {

/// The stand-in for the derivative of the sign, which is 0 almost everywhere.
enum class SignGradient : uint8_t {
  clipped,  ///< 1 where |x| <= 1, else 0: that of hardtanh (Hubara et al. 2016)
  approx,   ///< 2 - 2 |x| where |x| <= 1, else 0: ApproxSign (Liu et al. 2018, "Bi-Real net")
  identity  ///< 1
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::SignGradient> {
  static constexpr std::array<Word<quant::SignGradient>, 3> list = {
      {{quant::SignGradient::clipped, "clipped", "1 where |x| <= 1"},
       {quant::SignGradient::approx, "approx", "2 - 2 |x| where |x| <= 1"},
       {quant::SignGradient::identity, "identity", "1"}}};
};

namespace ulp::quant {

/// The sign of each element. The gradient to x is straight through, as `gradient` says.
ULP_API at::Tensor binarize(const at::Tensor& x, SignGradient gradient = SignGradient::clipped);

/// Ternary weight networks (Li et al. 2016): of each output channel (dimension 0) a * sign(w) where |w| > ratio *
/// mean |w|, else 0, with a the mean of these |w|. The gradient goes straight through to the weight.
ULP_API at::Tensor ternarize(const at::Tensor& weight, double ratio = 0.7);

/// The signs of a weight [O, C, ...] as bits, u8 [O, ..., ceil(C / 8)]: bit c % 8 of byte c / 8 is 1 where the weight
/// is negative (or NaN); unused bits are 0.
ULP_API at::Tensor pack_signs(const at::Tensor& weight);
/// The weight of these sizes in f32, +1 and -1, from its bits. Not differentiable. Throws ulp::Error for bits that
/// do not belong to the sizes.
ULP_API at::Tensor unpack_signs(const at::Tensor& bits, at::IntArrayRef sizes);

}  // namespace ulp::quant
