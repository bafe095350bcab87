// AWQ of the layers that read one input: the search for scales, and for clipped ranges.
#include <torch/utils.h>

#include <algorithm>

#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/second_moments.h"

namespace ulp::quant {
namespace {

constexpr int kAlphas = 20;  // alpha = i / 20
constexpr int kClips = 10;   // a range is shrunk by i / 20, i < 10
constexpr double kClipSteps = 20;
constexpr double kLeastScale = 1e-4;

/// Rows as groups [groups, rows, size], what pads the last one zero.
at::Tensor in_groups(const at::Tensor& matrix, int64_t size) {
  const int64_t groups = (matrix.size(1) + size - 1) / size;
  const at::Tensor whole = at::constant_pad_nd(matrix, {0, groups * size - matrix.size(1)});
  return whole.view({matrix.size(0), groups, size}).transpose(0, 1);
}

/// The blocks of H that lie inside a group [groups, size, size].
at::Tensor diagonal_blocks(const at::Tensor& hessian, int64_t size) {
  const int64_t groups = (hessian.size(0) + size - 1) / size, pad = groups * size - hessian.size(0);
  const at::Tensor whole = at::constant_pad_nd(hessian, {0, pad, 0, pad});
  return whole.view({groups, size, groups, size}).diagonal(0, 0, 2).permute({2, 0, 1}).contiguous();
}

/// Bounds of each group, shrunk to the least error of the group alone.
QParams clipped_params(const at::Tensor& weight, const at::Tensor& hessian, const WeightOnlyRecipe& recipe) {
  const Scheme scheme = recipe.scheme();
  const auto* per_group = std::get_if<PerGroup>(&scheme.granularity);
  const int64_t size = per_group != nullptr ? per_group->size : weight.size(1);
  const std::vector<int64_t> shape = scale_shape(scheme.granularity, weight.sizes());
  const at::Tensor parts = in_groups(weight, size), blocks = diagonal_blocks(hessian, size);
  const at::Tensor rows = to_rows(weight, scheme.granularity);
  const at::Tensor low = at::amin(rows, 1).reshape(shape), high = at::amax(rows, 1).reshape(shape);
  at::Tensor best, share = at::ones(shape);
  for (int i = 0; i < kClips; ++i) {
    const double kept = 1 - i / kClipSteps;
    const QParams params = choose_qparams(low * kept, high * kept, scheme);
    const at::Tensor difference = parts - in_groups(quantize_dequantize(weight, params), size);
    const at::Tensor error =
        at::bmm(difference, blocks).mul_(difference).sum(2).t().reshape(shape);  // from [groups, rows]
    if (i == 0) {
      best = error;
      continue;
    }
    const at::Tensor better = error < best;
    share.masked_fill_(better, kept);
    best = at::where(better, error, best);
  }
  return choose_qparams(low * share, high * share, scheme);
}

}  // namespace

AwqScales awq_scales(const std::vector<at::Tensor>& weights, const SecondMoments& moments,
                     const std::vector<WeightOnlyRecipe>& recipes) {
  const at::Tensor mean = (moments.magnitude / static_cast<double>(moments.rows)).to(at::kFloat);
  const at::Tensor hessian = (moments.hessian / static_cast<double>(moments.rows)).to(at::kFloat);
  AwqScales best{.scale = at::ones_like(mean)};
  double least = 0;
  for (int i = 0; i < kAlphas; ++i) {
    const double alpha = static_cast<double>(i) / kAlphas;
    at::Tensor scale = mean.pow(alpha).clamp_min(kLeastScale);
    scale = scale / (scale.max() * scale.min()).sqrt();
    double error = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      const at::Tensor scaled = weights[k] * scale;
      error += output_error((rtn_codes(scaled, recipes[k]).values() - scaled) / scale, hessian);
    }
    if (i > 0 && !(error < least)) continue;
    least = error;
    best = {.scale = scale, .alpha = alpha};
  }
  return best;
}

MatrixCodes awq_codes(const at::Tensor& weight, const at::Tensor& hessian, const WeightOnlyRecipe& recipe) {
  MatrixCodes plain = rtn_codes(weight, recipe);
  if (!recipe.clip) return plain;
  const at::Tensor h = hessian.to(at::kFloat);
  MatrixCodes clipped{.params = clipped_params(weight, h, recipe)};
  clipped.codes = quantize(weight, clipped.params);
  const auto error = [&](const MatrixCodes& one) { return output_error(weight - one.values(), hessian); };
  return error(clipped) < error(plain) ? clipped : plain;
}

}  // namespace ulp::quant
