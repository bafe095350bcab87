// GPTQ of one matrix.
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/second_moments.h"

namespace ulp::quant {
namespace {

constexpr const char* kGptqWhere = "quant.gptq";

/// The upper Cholesky factor of the inverse of the damped Hessian, f32.
struct InverseFactor {
  at::Tensor factor;
  double damp = 0;
  int64_t dead = 0;  ///< columns whose input was always zero
};

/// What to try when so much damping was too little.
double more_damp(double damp) {
  return std::min(1.0, 10 * std::max(damp, 1e-3));
}

InverseFactor invert(const at::Tensor& hessian, double damp, const std::string& layer) {
  at::Tensor h = hessian.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor diagonal = h.diagonal(), dead = diagonal.eq(0);
  InverseFactor result;
  result.dead = dead.sum().item<int64_t>();
  const int64_t live = h.size(0) - result.dead;
  const double mean = live > 0 ? diagonal.sum().item<double>() / static_cast<double>(live) : 1;
  diagonal.masked_fill_(dead, mean);  // they stand alone: their rows and columns are zero
  for (double added = 0, wanted = damp;; wanted = more_damp(wanted)) {
    diagonal.add_((wanted - added) * mean);
    added = wanted;
    const auto [lower, failed] = at::linalg_cholesky_ex(h);
    if (failed.item<int>() == 0) {
      const auto [upper, failed_too] = at::linalg_cholesky_ex(at::cholesky_inverse(lower), /*upper=*/true);
      result.factor = upper.to(at::kFloat).contiguous();
      result.damp = wanted;
      if (failed_too.item<int>() == 0 && at::isfinite(result.factor).all().item<bool>()) return result;
    }
    if (wanted >= 1)
      fail(kGptqWhere, "expected a Hessian of '", layer,
           "' that damping makes positive definite, got none with ", wanted,
           " of the mean of its diagonal added");
  }
}

/// One matrix on its way to codes. Columns are in order of treatment.
class GptqMatrix {
 public:
  GptqMatrix(const at::Tensor& weight, const WeightOnlyRecipe& recipe, std::vector<int64_t> order)
      : scheme_(recipe.scheme()),
        rows_(weight.size(0)),
        columns_(weight.size(1)),
        group_(recipe.bits == 8 || recipe.group < 0 ? columns_ : recipe.group),
        block_(recipe.block),
        fixed_(recipe.act_order || recipe.static_groups),
        order_(std::move(order)),
        params_(qparams_of(weight, scheme_)),
        weight_(weight.index_select(1, at::tensor(order_)).contiguous()),
        codes_(at::empty({rows_, columns_}, at::kShort)) {
    params_.scale = params_.scale.contiguous();
    params_.zero_point = params_.zero_point.contiguous();
    groups_ = params_.scale.numel() / rows_;
  }

  void solve(const at::Tensor& factor) {
    for (int64_t begin = 0, end = 0; begin < columns_; begin = end) {
      end = block_end(begin);
      const at::Tensor errors = at::empty({rows_, end - begin}, at::kFloat);
      libtorch::parallel_for(0, rows_, 1, [&](int64_t from, int64_t to) {
        for (int64_t row = from; row < to; ++row) solve_row(row, begin, end, factor, errors);
      });
      if (end == columns_) break;
      weight_.narrow(1, end, columns_ - end)
          .addmm_(errors, factor.narrow(0, begin, end - begin).narrow(1, end, columns_ - end), 1, -1);
    }
  }

  MatrixCodes result() const { return {.codes = codes_.to(scheme_.dtype()), .params = params_}; }

 private:
  /// A group begins where a block does or lies inside one, so that its scale is found of weights up to date.
  int64_t block_end(int64_t begin) const {
    int64_t end = begin + block_;
    if (!fixed_)
      end =
          group_ <= block_ ? begin + block_ / group_ * group_ : std::min(end, (begin / group_ + 1) * group_);
    return std::min(end, columns_);
  }

  void find_scale(int64_t row, int64_t begin) {
    const float* w = weight_.const_data_ptr<float>() + row * columns_ + begin;
    const auto [min, max] = std::minmax_element(w, w + std::min(group_, columns_ - begin));
    const ScaleZero chosen = choose_scale_zero(*min, *max, scheme_);
    const int64_t place = row * groups_ + begin / group_;
    params_.scale.mutable_data_ptr<float>()[place] = chosen.scale;
    params_.zero_point.mutable_data_ptr<int32_t>()[place] = chosen.zero_point;
  }

  void solve_row(int64_t row, int64_t begin, int64_t end, const at::Tensor& factor,
                 const at::Tensor& errors) {
    float* w = weight_.mutable_data_ptr<float>() + row * columns_;
    float* e = errors.mutable_data_ptr<float>() + row * (end - begin);
    int16_t* q = codes_.mutable_data_ptr<int16_t>() + row * columns_;
    const auto lowest = static_cast<float>(scheme_.qmin()), highest = static_cast<float>(scheme_.qmax());
    for (int64_t i = begin; i < end; ++i) {
      if (!fixed_ && i % group_ == 0) find_scale(row, i);
      const int64_t place = row * groups_ + order_[static_cast<size_t>(i)] / group_;
      const float scale = params_.scale.const_data_ptr<float>()[place];
      const auto zero = static_cast<float>(params_.zero_point.const_data_ptr<int32_t>()[place]);
      // As ulp::quantize rounds.
      const float code = std::clamp(std::nearbyint(w[i] * (1 / scale)) + zero, lowest, highest);
      q[order_[static_cast<size_t>(i)]] = static_cast<int16_t>(code);
      const float* u = factor.const_data_ptr<float>() + i * columns_;
      const float error = (w[i] - (code - zero) * scale) / u[i];
      e[i - begin] = error;
      for (int64_t k = i + 1; k < end; ++k) w[k] -= error * u[k];
    }
  }

  Scheme scheme_;
  int64_t rows_, columns_, group_, block_, groups_ = 1;
  bool fixed_;  ///< scales are those of the weight as it came
  std::vector<int64_t> order_;
  QParams params_;
  at::Tensor weight_, codes_;
};

std::vector<int64_t> column_order(const at::Tensor& hessian, bool act_order) {
  std::vector<int64_t> order(static_cast<size_t>(hessian.size(0)));
  std::iota(order.begin(), order.end(), 0);
  if (!act_order) return order;
  const at::Tensor diagonal = hessian.diagonal().to(at::kDouble).contiguous();
  const double* of = diagonal.const_data_ptr<double>();
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return of[a] > of[b]; });
  return order;
}

}  // namespace

MatrixCodes gptq_codes(const at::Tensor& weight, const at::Tensor& hessian, const WeightOnlyRecipe& recipe,
                       const std::string& layer) {
  std::vector<int64_t> order = column_order(hessian, recipe.act_order);
  at::Tensor h = hessian;
  if (recipe.act_order) {
    const at::Tensor index = at::tensor(order);
    h = h.index_select(0, index).index_select(1, index);
  }
  const InverseFactor inverse = invert(h, recipe.damp, layer);
  GptqMatrix matrix(weight, recipe, std::move(order));
  matrix.solve(inverse.factor);
  MatrixCodes result = matrix.result();
  result.damp = inverse.damp;
  if (inverse.damp != recipe.damp) result.note = "more damping than asked for";
  if (inverse.dead > 0)
    result.note += (result.note.empty() ? "" : ", ") + std::to_string(inverse.dead) + " inputs were always 0";
  return result;
}

StoredQuantizedWeight gptq_weight(const at::Tensor& weight, const at::Tensor& hessian,
                                  const WeightOnlyRecipe& recipe, WeightError* error) {
  const at::NoGradGuard no_grad;
  WeightOnlyRecipe own = recipe;
  own.method = WeightMethod::gptq;
  own.validate();
  if (weight.dim() != 2 || hessian.dim() != 2 || hessian.size(0) != weight.size(1) ||
      hessian.size(1) != weight.size(1) || !weight.is_floating_point() || weight.numel() == 0)
    fail(kGptqWhere, "expected floating-point [rows, columns] and a Hessian [columns, columns], got ",
         weight.sizes(), " and ", hessian.sizes());
  if (!at::isfinite(weight).all().item<bool>() || !at::isfinite(hessian).all().item<bool>())
    fail(kGptqWhere, "expected a finite weight and Hessian, got NaN or infinite values");
  const at::Tensor values = weight.detach().to(at::kFloat), h = hessian.to(at::kDouble);
  const MatrixCodes made = gptq_codes(values, h, own, "weight");
  StoredQuantizedWeight codes = stored_codes(made.codes, made.params, own);
  if (error == nullptr) return codes;
  const double whole = output_error(values, h);
  const auto relative = [&](double part) { return whole > 0 ? part / whole : 0; };
  *error = {.columns = weight.size(1),
            .groups = made.params.scale.numel() / weight.size(0),
            .error = relative(output_error(values - made.values(), h)),
            .plain_error = relative(output_error(values - rtn_codes(values, own).values(), h)),
            .damp = made.damp,
            .note = made.note};
  return codes;
}

}  // namespace ulp::quant
