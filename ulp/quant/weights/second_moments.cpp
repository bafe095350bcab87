#include "ulp/quant/weights/second_moments.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {

void SecondMoments::add(const at::Tensor& x, const std::string& layer) {
  const at::Tensor batch = x.detach().reshape({-1, x.size(-1)}).to(at::kFloat);
  if (!at::isfinite(batch).all().item<bool>()) {
    fail("quant.quantize_weights", "expected finite inputs of '", layer, "', got ",
         at::isnan(batch).sum().item<int64_t>(), " NaN and ", at::isinf(batch).sum().item<int64_t>(),
         " infinite values");
  }
  const at::Tensor products = at::mm(batch.t(), batch);
  if (!at::isfinite(products).all().item<bool>())
    fail("quant.quantize_weights", "expected inputs of '", layer, "' whose squares are finite, got up to ",
         batch.abs().max().item<float>());
  if (rows == 0) {
    hessian = at::zeros_like(products, at::kDouble);
    magnitude = at::zeros({batch.size(1)}, hessian.options());
  }
  hessian.add_(products);
  magnitude.add_(batch.abs().sum(0, /*keepdim=*/false, at::kDouble));
  rows += batch.size(0);
}

double output_error(const at::Tensor& difference, const at::Tensor& hessian) {
  const at::Tensor wide = difference.to(hessian.scalar_type());
  return at::mm(wide, hessian).mul_(wide).sum(at::kDouble).item<double>();
}

at::Tensor MatrixCodes::values() const {
  return dequantize(codes, params);
}

MatrixCodes rtn_codes(const at::Tensor& weight, const WeightOnlyRecipe& recipe) {
  const QParams params = qparams_of(weight, recipe.scheme());
  return {.codes = quantize(weight, params), .params = params};
}

}  // namespace ulp::quant
