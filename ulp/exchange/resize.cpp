#include "ulp/exchange/resize.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulp/exchange/arguments.h"

namespace ulp::exchange {

namespace {

std::optional<double> given(double factor) {
  return factor > 0 ? std::optional(factor) : std::nullopt;
}

/// Nearest elements of [1, C, ...].
at::Tensor picked(const at::Tensor& x, const std::vector<int64_t>& to, const std::vector<ResizeAxis>& axes,
                  bool exact) {
  const auto factor = [&](size_t d) { return given(axes.at(d).factor); };
  if (exact && axes.size() == 1) return at::_upsample_nearest_exact1d(x, to, factor(0));
  if (exact && axes.size() == 2) return at::_upsample_nearest_exact2d(x, to, factor(0), factor(1));
  if (exact) return at::_upsample_nearest_exact3d(x, to, factor(0), factor(1), factor(2));
  switch (axes.size()) {
    case 1:
      return at::upsample_nearest1d(x, to, factor(0));
    case 2:
      return at::upsample_nearest2d(x, to, factor(0), factor(1));
    default:
      return at::upsample_nearest3d(x, to, factor(0), factor(1), factor(2));
  }
}

/// The weight of an element at this distance from the middle of the window, as PIL has them: a triangle, or
/// the cubic kernel of a = -0.5.
double antialiasing_weight(double distance, bool cubic) {
  constexpr double kA = -0.5;
  const double x = std::abs(distance);
  if (!cubic) return std::max(1 - x, 0.0);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

/// Windows that grow with the step of a resize that makes the image smaller, LibTorch's
/// _compute_indices_min_size_weights_aa: the weights of each window have a sum of 1.
at::Tensor antialiased_matrix(const ResizeAxis& axis, bool corners, bool cubic) {
  const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  const double by_corners = axis.out > 1 ? (in - 1) / (out - 1) : 0;
  const double step = corners ? by_corners : axis.factor > 0 ? 1 / axis.factor : in / out;
  const double widening = std::max(step, 1.0), reach = (cubic ? 2 : 1) * widening;
  at::Tensor matrix = torch::zeros({axis.out, axis.in}, torch::kDouble);
  auto weights = matrix.accessor<double, 2>();
  for (int64_t o = 0; o < axis.out; ++o) {
    const double middle = step * (static_cast<double>(o) + 0.5);
    const auto place = [&](double at) { return static_cast<int64_t>(std::clamp(at + 0.5, 0.0, in)); };
    const int64_t start = place(middle - reach), end = place(middle + reach);
    double sum = 0;
    for (int64_t i = start; i < end; ++i) {
      weights[o][i] = antialiasing_weight((static_cast<double>(i) - middle + 0.5) / widening, cubic);
      sum += weights[o][i];
    }
    for (int64_t i = start; i < end && sum != 0; ++i) weights[o][i] /= sum;
  }
  return matrix;
}

}  // namespace

bool ResizeAxis::by_sizes() const {
  constexpr double kRounding = 1e-12;  // of a factor such as 1.1
  const auto wanted = static_cast<double>(out);
  return factor <= 0 || std::abs(factor * static_cast<double>(in) - wanted) <= kRounding * wanted;
}

std::vector<double> ResizeAxis::places(bool corners) const {
  const torch::NoGradGuard no_grad;
  const at::Tensor places_in = torch::arange(in, torch::kDouble).view({1, 1, in});
  const at::Tensor made = at::upsample_linear1d(places_in, {out}, corners, given(factor)).contiguous();
  return {made.const_data_ptr<double>(), made.const_data_ptr<double>() + out};
}

void find_picks(std::vector<ResizeAxis>& axes, const graph::Value& x, bool exact) {
  const torch::NoGradGuard no_grad;
  const size_t dims = axes.size();
  const bool known = x.meta && x.meta->sizes.size() == dims + 2 && x.meta->sizes[1].constant();
  std::vector<int64_t> from = {1, known ? x.meta->sizes[1].offset : 1}, to;
  for (const ResizeAxis& axis : axes) {
    from.push_back(axis.in);
    to.push_back(axis.out);
  }
  for (size_t d = 0; d < dims; ++d) {
    std::vector<int64_t> along(dims - d, 1);
    along[0] = axes[d].in;
    at::Tensor places = torch::arange(axes[d].in, torch::kFloat).view(along).expand(from).contiguous();
    if (dims == 2 && x.meta && x.meta->channels_last)
      places = places.contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor row = picked(places, to, axes, exact)[0][0];
    for (size_t other = 0; other < dims; ++other) {
      if (other != d) row = row.select(other < d ? 0 : 1, 0);
    }
    const at::Tensor ids = row.to(at::kLong).contiguous();
    axes[d].picks.assign(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel());
  }
}

LinearPicks linear_picks(const ResizeAxis& axis, bool corners) {
  LinearPicks picks;
  std::vector<float> shares;
  for (const double place : axis.places(corners)) {
    const int64_t lower = std::clamp<int64_t>(static_cast<int64_t>(std::floor(place)), 0, axis.in - 1);
    picks.lower.push_back(lower);
    picks.upper.push_back(std::min(lower + 1, axis.in - 1));
    shares.push_back(static_cast<float>(place - static_cast<double>(lower)));
  }
  picks.share = torch::tensor(shares, torch::kFloat);
  return picks;
}

at::Tensor resize_matrix(const graph::Node& node, const ResizeAxis& axis) {
  const torch::NoGradGuard no_grad;
  const bool corners = bool_arg(node, "align_corners");
  if (node.is("aten::_upsample_bilinear2d_aa")) return antialiased_matrix(axis, corners, /*cubic=*/false);
  if (node.is("aten::_upsample_bicubic2d_aa")) return antialiased_matrix(axis, corners, /*cubic=*/true);
  const std::vector<int64_t> to = {axis.out, axis.in};  // the width stays
  const at::Tensor units = torch::eye(axis.in, torch::kDouble).view({1, 1, axis.in, axis.in});
  const auto factor = given(axis.factor), none = given(0);
  at::Tensor matrix;
  if (node.is("aten::upsample_bicubic2d")) {
    matrix = at::upsample_bicubic2d(units, to, corners, factor, none);
  } else {
    matrix = at::upsample_bilinear2d(units, to, corners, factor, none);
  }
  return matrix.view({axis.out, axis.in});
}

std::vector<double> resize_factors(const graph::Node& node, size_t dims) {
  std::vector<double> factors;
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (has_arg(node, name)) factors.push_back(optional_number(node, name).value_or(0));
  }
  if (has_arg(node, "scale_factors") && !node.arg("scale_factors").is_none()) {
    const graph::Argument& list = node.arg("scale_factors");
    if (list.kind != graph::Argument::Kind::literal || !list.literal.isDoubleList())
      refuse(node, "expected factors that are constants");
    factors = list.literal.toDoubleVector();
  }
  if (factors.empty()) factors.assign(dims, 0);
  if (factors.size() != dims) refuse(node, "expected ", dims, " factors, got ", factors.size());
  return factors;
}

float factor_for(double wish, int64_t in, int64_t out) {
  constexpr int kMostSteps = 4;
  const auto gives = [&](float factor) {
    const auto size = static_cast<float>(in);
    return std::floor(factor * size) == static_cast<float>(out) &&
           std::floor(static_cast<double>(factor) * static_cast<double>(in)) == static_cast<double>(out);
  };
  float up = static_cast<float>(wish), down = up;
  for (int i = 0; i <= kMostSteps; ++i) {
    if (gives(up)) return up;
    if (gives(down)) return down;
    up = std::nextafter(up, INFINITY);
    down = std::nextafter(down, 0.0F);
  }
  return 0;
}

}  // namespace ulp::exchange
