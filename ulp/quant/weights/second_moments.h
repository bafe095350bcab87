// What data say of a layer's input, and what that says of a weight's error. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/quant/scheme/scheme.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

/// Sums over the rows of an input.
struct SecondMoments {
  at::Tensor hessian;    ///< f64 [columns, columns]: sum x x^T
  at::Tensor magnitude;  ///< f64 [columns]: sum |x|
  int64_t rows = 0;

  /// Adds the rows of x [..., columns]. Throws ulp::Error naming the layer for numbers that are not finite.
  void add(const at::Tensor& x, const std::string& layer);
};

/// ||D X||^2 = tr(D H D^T).
double output_error(const at::Tensor& difference, const at::Tensor& hessian);

/// Codes of a matrix [rows, columns], and what they stand for.
struct MatrixCodes {
  at::Tensor codes;
  QParams params;
  double damp = 0;
  std::string note = {};

  at::Tensor values() const;
};

/// Round to nearest.
MatrixCodes rtn_codes(const at::Tensor& weight, const WeightOnlyRecipe& recipe);

/// GPTQ as gptq() says. `layer` is for errors.
MatrixCodes gptq_codes(const at::Tensor& weight, const at::Tensor& hessian, const WeightOnlyRecipe& recipe,
                       const std::string& layer);

/// Scales of an input's channels for the layers that read it.
struct AwqScales {
  at::Tensor scale;  ///< f32 [columns]
  double alpha = 0;
};

/// The search over alpha, as awq() says, for weights with a recipe each.
AwqScales awq_scales(const std::vector<at::Tensor>& weights, const SecondMoments& moments,
                     const std::vector<WeightOnlyRecipe>& recipes);

/// Codes of a weight that is scaled already, with ranges clipped where the recipe says so; H is that of the
/// scaled input.
MatrixCodes awq_codes(const at::Tensor& weight, const at::Tensor& hessian, const WeightOnlyRecipe& recipe);

}  // namespace ulp::quant
