#include "ulp/quant/weights/hqq.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/round_to_nearest.h"

namespace ulp::quant {
namespace {

constexpr double kNorm = 0.7;
constexpr double kFirstBeta = 10;
constexpr double kKappa = 1.01;
constexpr int kRounds = 20;

/// The minimiser of |E|^p + beta / 2 (E - x)^2, but for a factor of beta, as the authors approximate it.
at::Tensor shrink(const at::Tensor& x, double beta) {
  const at::Tensor size = x.abs();
  return x.sign().mul_((size - size.pow(kNorm - 1) / beta).clamp_min_(0).nan_to_num_(0));
}

/// A weight in groups, f64 [rows, groups, size], what pads the last group apart.
class HqqGroups {
 public:
  HqqGroups(const at::Tensor& weight, const WeightOnlyRecipe& recipe)
      : scheme_(recipe.scheme()), columns_(weight.size(1)) {
    const bool whole = recipe.bits == 8 || recipe.group < 0;
    const int64_t size = whole ? columns_ : recipe.group, groups = (columns_ + size - 1) / size;
    const int64_t pad = groups * size - columns_;
    const at::Tensor wide = weight.to(at::kDouble);
    w_ = at::constant_pad_nd(wide, {0, pad}).view({weight.size(0), groups, size});
    real_ = at::constant_pad_nd(at::ones({columns_}, wide.options()), {0, pad}).view({groups, size});
    count_ = real_.sum(1, /*keepdim=*/true);
    lowest_ = static_cast<double>(scheme_.qmin());
    highest_ = static_cast<double>(scheme_.qmax());
  }

  /// Of Q = scale code - minimum.
  void solve_affine() {
    const at::Tensor absent = real_.eq(0);
    const at::Tensor low = w_.masked_fill(absent, INFINITY).amin(2, /*keepdim=*/true);
    const at::Tensor high = w_.masked_fill(absent, -INFINITY).amax(2, /*keepdim=*/true);
    scale = in_f32((high - low) / (highest_ - lowest_));
    minimum = in_f32(-low);
    improve([&](const at::Tensor& codes, const at::Tensor& target) {
      minimum = in_f32(((scale * codes - target) * real_).sum(2, /*keepdim=*/true) / count_);
    });
  }

  /// Of Q = scale code, from the scales [rows, groups] of plain rounding.
  void solve_symmetric(const at::Tensor& first) {
    scale = first.to(at::kDouble).view({w_.size(0), w_.size(1), 1});
    minimum = at::zeros_like(scale);
    improve([&](const at::Tensor& codes, const at::Tensor& target) {
      const at::Tensor squares = (codes * codes * real_).sum(2, /*keepdim=*/true);
      const at::Tensor wanted = in_f32((codes * target * real_).sum(2, /*keepdim=*/true) / squares);
      scale = at::where(wanted > 0, wanted, scale);  // no code but 0 makes NaN
    });
  }

  /// [rows, columns], f64.
  at::Tensor codes() const {
    const at::Tensor grouped = rounded();
    return grouped.reshape({w_.size(0), -1}).narrow(1, 0, columns_);
  }
  at::Tensor per_group(const at::Tensor& one) const {
    return one.to(at::kFloat).view({w_.size(0), w_.size(1)});
  }

  at::Tensor scale, minimum;  ///< f64 [rows, groups, 1] of f32's numbers

 private:
  static at::Tensor in_f32(const at::Tensor& x) { return x.to(at::kFloat).to(at::kDouble); }

  at::Tensor rounded() const {
    // A group of one number has the scale 0, and any code stands for it.
    return ((w_ + minimum) / scale).nan_to_num_(0, 0, 0).round_().clamp_(lowest_, highest_);
  }

  /// Calls `update` with the codes of the moment and W - E; keeps each group's best parameters of all rounds.
  template <typename Update>
  void improve(Update&& update) {
    at::Tensor best, best_scale, best_minimum;
    double beta = kFirstBeta;
    for (int round = 0; round <= kRounds; ++round, beta *= kKappa) {
      const at::Tensor now = rounded(), difference = (w_ - (scale * now - minimum)) * real_;
      const at::Tensor error = difference.abs().pow_(kNorm).sum(2, /*keepdim=*/true);
      if (round == 0) {
        best = error;
        best_scale = scale;
        best_minimum = minimum;
      } else {
        const at::Tensor better = error < best;
        best = at::where(better, error, best);
        best_scale = at::where(better, scale, best_scale);
        best_minimum = at::where(better, minimum, best_minimum);
      }
      if (round < kRounds) update(now, w_ - shrink(difference, beta));
    }
    scale = best_scale;
    minimum = best_minimum;
  }

  Scheme scheme_;
  int64_t columns_;
  at::Tensor w_, real_, count_;
  double lowest_ = 0, highest_ = 0;
};

StoredQuantizedWeight solved(const at::Tensor& values, const WeightOnlyRecipe& recipe) {
  HqqGroups groups(values, recipe);
  if (recipe.affine) {
    groups.solve_affine();
    return stored_with_minima(groups.codes().to(at::kByte), groups.per_group(groups.scale),
                              groups.per_group(groups.minimum), recipe);
  }
  QParams params = qparams_of(values, recipe.scheme());
  groups.solve_symmetric(params.scale);
  params.scale = groups.scale.to(at::kFloat).view(params.scale.sizes());
  return stored_codes(groups.codes().to(at::kChar), params, recipe);
}

}  // namespace

StoredQuantizedWeight hqq_weight(const at::Tensor& weight, const WeightOnlyRecipe& recipe) {
  const at::NoGradGuard no_grad;
  recipe.validate();
  if (weight.dim() != 2 || !weight.is_floating_point() || weight.numel() == 0)
    fail("quant.hqq", "expected floating-point [rows, columns], got ", weight.scalar_type(), ' ',
         weight.sizes());
  check_finite_weight("weight", weight);
  const at::Tensor values = weight.detach().to(at::kFloat);
  StoredQuantizedWeight made = solved(values, recipe);
  if (!at::isfinite(dequantize_weight(made)).all().item<bool>())
    fail("quant.hqq", "expected weights whose ranges float32 holds, got up to ",
         values.abs().max().item<float>());
  return made;
}

}  // namespace ulp::quant
