// Tensors of 8-bit (and 4-bit) codes with their scales: the quantizers of the recipes.
//
// Values are divided by their scale, saturated and rounded to the nearest even code; `scale_inv` is what codes are
// multiplied by again. An infinity becomes the largest number; a NaN stays one where the format has it (fp4 has
// not). Scales, with amax the largest magnitude of what shares one and M the format's largest number:
//
//   current   M / amax, or with power_of_2 the power of two below it; 1 where amax is 0 or not finite
//   rowwise   the power of two below M / max(amax, 1e-12), of each row; 1 where amax is not finite
//   block     the power of two below M / amax, of 1x128 or 128x128 values; 1 where amax is 0 or not finite
//   mxfp8     scale_inv = 2^e of 32 values: the power of two above amax / 448, or floor(log2 amax) - 8; 2^-127 where
//             amax is 0, NaN (and with it all 32 values) where it is not finite
//   nvfp4     scale_inv = t e4m3(amax / (6 t)) of 16 values, t = amax of the tensor / (448 * 6); NaN as mxfp8
//
// Delayed scales are in fp8_state.h. Values that share a scale lie along the last dimension, which is the one that a
// product sums over; weights of block and nvfp4 have square blocks, so that their transpose has the same codes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/base/export.h"
#include "ulp/formats/format.h"
#include "ulp/formats/random_bits.h"

namespace ulp::amp {

/// The role of a tensor in a layer's three products.
enum class Fp8Role : uint8_t { input, weight, gradient };
/// All of them, in the order of their enumerators.
inline constexpr std::array<Fp8Role, 3> kFp8Roles = {Fp8Role::input, Fp8Role::weight, Fp8Role::gradient};

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::Fp8Role> {
  using enum amp::Fp8Role;
  static constexpr std::array<Word<amp::Fp8Role>, 3> list = {
      {{input, "input"}, {weight, "weight"}, {gradient, "gradient"}}};
};

namespace ulp::amp {

/// The number format of a tensor in this role.
ULP_API const formats::Format& fp8_format(const Fp8LayerRecipe& recipe, Fp8Role role);

/// How many values share a scale in each direction of a matrix; 0: all of the dimension.
struct Fp8Block {
  int64_t rows = 0, columns = 0;
};
ULP_API Fp8Block fp8_block(const Fp8LayerRecipe& recipe, Fp8Role role);

/// Codes, one in a byte, and what they are multiplied by.
struct ULP_API Fp8Tensor {
  const formats::Format* format = nullptr;
  at::Tensor codes;  ///< uint8, in the shape of the source
  /// f32: of no dimensions where the tensor has one scale, else [rows / block.rows, columns / block.columns], rounded
  /// up, with all but the last dimension of the source as rows.
  at::Tensor scale_inv;
  Fp8Block block = {};
  at::Tensor scale_codes = {};   ///< mxfp8, nvfp4: uint8, e8m0 or e4m3, of the shape of scale_inv
  at::Tensor tensor_scale = {};  ///< nvfp4: f32 of no dimensions

  /// The codes' numbers without their scales, f32.
  at::Tensor values() const;
  /// values() times scale_inv, rounded to f32 (exact where scales are powers of two).
  at::Tensor dequantized() const;
  /// The transpose of a matrix with one scale or square blocks.
  Fp8Tensor transposed() const;
};

/// The largest magnitude of a tensor as f32 of no dimensions; NaN or infinite where a value is.
ULP_API at::Tensor amax_of(const at::Tensor& x);

/// The scale of current scaling for this amax: see above.
ULP_API at::Tensor current_scale(const at::Tensor& amax, const formats::Format& format, bool power_of_2);

/// A whole tensor by one given scale (f32 of no dimensions, values are multiplied by it).
ULP_API Fp8Tensor quantize_whole(const at::Tensor& x, const formats::Format& format, const at::Tensor& scale);

/// By the recipe's own scales, along the last dimension. Not for delayed scaling, which throws ulp::Error. `random`:
/// the key of stochastic rounding; nothing: to nearest.
ULP_API Fp8Tensor quantize_fp8(const at::Tensor& x, const Fp8LayerRecipe& recipe, Fp8Role role,
                               std::optional<formats::RandomKey> random = std::nullopt);

/// The last dimension in groups of 16 (padded with zeros to whole ones) times the Hadamard matrix of 16 over 4, which
/// is its own inverse: products that sum over that dimension stay the same, and outliers are spread over their group.
ULP_API at::Tensor hadamard_16(const at::Tensor& x);

}  // namespace ulp::amp
