#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/methods/learned_rounding.h"

namespace ulp::quant {
namespace {

constexpr const char* kAdaroundWhere = "quant.adaround_weight";
constexpr double kZeta = 1.1, kGamma = -0.1;  // of the rectified sigmoid
constexpr double kRate = 0.01, kMomentum = 0.9, kVariance = 0.999, kEpsilon = 1e-8;
constexpr double kBetaFirst = 20, kBetaLast = 2, kWarmUp = 0.2;
constexpr double kPull = 10;  // of h to 0 and 1
constexpr int64_t kAskEvery = 64;

void check(const at::Tensor& weight, const at::Tensor& scale, const RoundingData& data) {
  const int64_t groups = weight.dim() == 3 ? weight.size(0) : -1;
  const int64_t rows = groups < 0 ? 0 : weight.size(1), columns = groups < 0 ? 0 : weight.size(2);
  const bool fits = groups > 0 && scale.sizes() == at::IntArrayRef({groups, rows, 1}) &&
                    data.hessian.sizes() == at::IntArrayRef({groups, columns, columns}) &&
                    data.products.sizes() == weight.sizes() &&
                    data.norm.sizes() == at::IntArrayRef({groups, rows});
  if (!fits)
    fail(kAdaroundWhere, "expected sums for a weight [groups, rows, columns], got ", weight.sizes(), ", ",
         data.hessian.sizes(), ", ", data.products.sizes(), " and ", data.norm.sizes());
  for (const at::Tensor& sums : {weight, data.hessian, data.products, data.norm}) {
    if (!at::isfinite(sums).all().item<bool>())
      fail(kAdaroundWhere, "expected finite weights and sums, got NaN or infinite values");
  }
}

/// Learns h of one layer. With D = Q - W, E = D H D^T + 2 D R + C, where R = W H - P.
class RoundingLearner {
 public:
  RoundingLearner(const at::Tensor& weight, const at::Tensor& scale, const Scheme& scheme,
                  const RoundingData& data)
      : weight_(weight),
        scale_(scale),
        low_(static_cast<double>(scheme.qmin())),
        high_(static_cast<double>(scheme.qmax())),
        hessian_(data.hessian) {
    const at::Tensor w = weight.to(at::kDouble), wh = at::bmm(w, hessian_);
    rest_ = wh - data.products;
    constant_ = (wh * w).sum(2) - 2 * (w * data.products).sum(2) + data.norm;
    const at::Tensor steps = weight / scale;
    floor_ = steps.floor();
    share_ = steps - floor_;
    free_ = weight != 0;
    nearest_ = steps.round().clamp_(low_, high_);
    nearest_error_ = error_of(nearest_);
  }

  LearnedRounding learn(int64_t iterations) {
    const at::Tensor up = optimize(iterations) >= 0.5;
    const at::Tensor learned = at::where(free_, (floor_ + up).clamp_(low_, high_), at::zeros_like(floor_));
    const at::Tensor error = error_of(learned), better = error < nearest_error_;
    return {.codes = at::where(better.unsqueeze(2), learned, nearest_).to(at::kChar),
            .error = at::where(better, error, nearest_error_).sum().item<double>(),
            .nearest = nearest_error_.sum().item<double>()};
  }

 private:
  /// Of each row, f64 [groups, rows].
  at::Tensor error_of(const at::Tensor& codes) const {
    const at::Tensor d = (codes * scale_).to(at::kDouble) - weight_.to(at::kDouble);
    return ((at::bmm(d, hessian_) + 2 * rest_) * d).sum(2) + constant_;
  }

  /// The result is h.
  at::Tensor optimize(int64_t iterations) {
    const double columns = static_cast<double>(weight_.size(2));
    const at::Tensor weigh = (columns / nearest_error_.clamp_min(1e-300)).nan_to_num_(0, 0, 0).unsqueeze(2);
    const at::Tensor hessian = hessian_.to(at::kFloat);
    const at::Tensor rest = rest_.to(at::kFloat),
                     factor = 2 * (weigh * scale_.to(at::kDouble)).to(at::kFloat);
    at::Tensor v = at::logit(((share_ - kGamma) / (kZeta - kGamma)));
    at::Tensor mean = at::zeros_like(v), square = at::zeros_like(v);
    const auto warm = static_cast<int64_t>(kWarmUp * static_cast<double>(iterations));
    double mean_left = 1, square_left = 1;
    for (int64_t i = 0; i < iterations; ++i) {
      if (i % kAskEvery == 0) check_interrupted();
      const at::Tensor sigmoid = at::sigmoid(v), open = sigmoid * (kZeta - kGamma) + kGamma;
      const at::Tensor h = open.clamp(0, 1), code = floor_ + h;
      const at::Tensor d = code.clamp(low_, high_).mul_(scale_).sub_(weight_);
      at::Tensor gradient = at::baddbmm(rest, d, hessian).mul_(factor);
      gradient.mul_((code >= low_).logical_and_(code <= high_));
      if (i >= warm) {
        const double left =
            1 - static_cast<double>(i - warm) / static_cast<double>(std::max<int64_t>(iterations - warm, 1));
        const double beta = kBetaLast + (kBetaFirst - kBetaLast) * left;
        const at::Tensor side = 2 * h - 1;
        gradient.sub_(side.abs().pow_(beta - 1).mul_(side.sign()), 2 * kPull * beta);
      }
      gradient.mul_(sigmoid.mul(1 - sigmoid)).mul_(free_).mul_((open >= 0).logical_and_(open <= 1));
      mean.mul_(kMomentum).add_(gradient, 1 - kMomentum);
      square.mul_(kVariance).addcmul_(gradient, gradient, 1 - kVariance);
      mean_left *= kMomentum;
      square_left *= kVariance;
      v.addcdiv_(mean, (square / (1 - square_left)).sqrt_().add_(kEpsilon), -kRate / (1 - mean_left));
    }
    return (at::sigmoid(v) * (kZeta - kGamma) + kGamma).clamp_(0, 1);
  }

  at::Tensor weight_, scale_;
  double low_, high_;
  at::Tensor hessian_, rest_, constant_;  ///< f64
  at::Tensor floor_, share_, free_, nearest_, nearest_error_;
};

}  // namespace

LearnedRounding adaround_weight(const at::Tensor& weight, const at::Tensor& scale, const Scheme& scheme,
                                const RoundingData& data, int64_t iterations) {
  check(weight, scale, data);
  const at::NoGradGuard no_grad;
  return RoundingLearner(weight, scale, scheme, data).learn(iterations);
}

}  // namespace ulp::quant
