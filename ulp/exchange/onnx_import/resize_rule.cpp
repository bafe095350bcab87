#include "ulp/exchange/onnx_import/resize_rule.h"

#include <algorithm>
#include <cmath>

namespace ulp::exchange::onnx_import {

namespace {

constexpr int64_t kFirstWithPlaces = 11;  // before, places were asymmetric

/// The place in the input of pixel `i` of the result, in float as runtimes compute it.
float original_place(const ResizeRule& rule, const ResizedAxis& axis, int64_t i) {
  const auto at = static_cast<float>(i), in = static_cast<float>(axis.in), out = static_cast<float>(axis.out);
  if (rule.place == "asymmetric") return at / axis.scale;
  if (rule.place == "tf_half_pixel_for_nn") return (at + 0.5F) / axis.scale;
  if (rule.place == "align_corners") return axis.out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (rule.place == "pytorch_half_pixel" && axis.out <= 1) return 0;
  if (rule.place == "tf_crop_and_resize") {
    if (axis.out <= 1) return static_cast<float>(0.5 * (axis.from + axis.to) * (in - 1));
    return axis.from * (in - 1) + at * (axis.to - axis.from) * (in - 1) / (out - 1);
  }
  if (rule.place == "half_pixel_symmetric") {
    const float share = out / (axis.scale * in), offset = in / 2 * (1 - share);
    return static_cast<float>(offset + (static_cast<double>(at) + 0.5) / axis.scale - 0.5);
  }
  return (at + 0.5F) / axis.scale - 0.5F;
}

/// Refuses a place that is nearly, but not quite, between two pixels: runtimes round it to either.
void check_not_between(const Call& call, float place) {
  constexpr float kNear = 2e-6F;
  const float twice = 2 * place, nearest = std::round(twice);
  const bool odd = std::fmod(std::abs(nearest), 2.0F) == 1;
  if (odd && twice != nearest && std::abs(twice - nearest) <= kNear * std::max(1.0F, std::abs(twice)))
    call.refuse("expected pixels that are nearest to one, got the place ", place,
                ", which runtimes round to either side");
}

int64_t rounded_place(const Call& call, const ResizeRule& rule, const ResizedAxis& axis, float place) {
  if (rule.rounding.empty()) return static_cast<int64_t>(axis.scale < 1 ? std::ceil(place) : place);
  if (rule.rounding == "floor") return static_cast<int64_t>(std::floor(place));
  if (rule.rounding == "ceil") return static_cast<int64_t>(std::ceil(place));
  check_not_between(call, place);
  const bool half = place == std::trunc(place) + 0.5F;
  if (rule.rounding == "round_prefer_floor" && half) return static_cast<int64_t>(std::floor(place));
  return static_cast<int64_t>(std::round(place));
}

/// Keys' kernel.
double cubic_share(double distance, double a) {
  const double t = std::abs(distance);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

bool is_out_of_crop(const ResizeRule& rule, const ResizedAxis& axis, float place) {
  return rule.place == "tf_crop_and_resize" && (place < 0 || place > static_cast<float>(axis.in - 1));
}

/// Pixels from `first` on with their shares.
struct PixelWindow {
  int64_t first = 0;
  std::vector<double> shares;
};

/// The window around a place: two or four pixels, or as many as the result's pixel covers.
PixelWindow window_around(const ResizeRule& rule, const ResizedAxis& axis, float place) {
  const bool linear = rule.mode == ResizeRule::Mode::linear;
  const auto share = [&](double distance) {
    return linear ? std::max(0.0, 1 - std::abs(distance)) : cubic_share(distance, rule.cubic);
  };
  PixelWindow window;
  if (!rule.antialias || axis.scale >= 1) {
    if (linear) place = std::clamp(place, 0.0F, static_cast<float>(axis.in - 1));
    const double low = std::floor(place);
    window.first = static_cast<int64_t>(low) - (linear ? 0 : 1);
    for (int64_t k = 0; k < (linear ? 2 : 4); ++k)
      window.shares.push_back(share(static_cast<double>(window.first + k) - place));
    return window;
  }
  const double wide = 1.0 / axis.scale, reach = (linear ? 1 : 2) * wide, center = place + 0.5;
  window.first = static_cast<int64_t>(std::floor(center - reach + 0.5));
  const auto end = static_cast<int64_t>(std::floor(center + reach + 0.5));
  double all = 0;
  for (int64_t k = window.first; k < end; ++k) {
    const bool left_out = rule.excludes_outside && (k < 0 || k >= axis.in);
    window.shares.push_back(left_out ? 0 : share((static_cast<double>(k) - center + 0.5) / wide));
    all += window.shares.back();
  }
  for (double& one : window.shares) one /= all;
  return window;
}

}  // namespace

ResizeRule resize_rule(const Call& call) {
  const bool upsample = call.node().op == "Upsample", old = upsample || call.opset() < kFirstWithPlaces;
  ResizeRule rule;
  const std::string mode = call.attribute("mode", "nearest");
  if (mode == "linear" || (old && mode == "bilinear"))
    rule.mode = ResizeRule::Mode::linear;
  else if (mode == "cubic")
    rule.mode = ResizeRule::Mode::cubic;
  else if (mode != "nearest")
    call.refuse("expected the mode nearest, linear or cubic, got ", mode);
  rule.place = old ? "asymmetric" : call.attribute("coordinate_transformation_mode", "half_pixel");
  rule.rounding = old ? "" : call.attribute("nearest_mode", "round_prefer_floor");
  for (const auto& [word, known] :
       {std::pair(rule.place, std::vector<std::string_view>{"asymmetric", "half_pixel", "pytorch_half_pixel",
                                                            "align_corners", "half_pixel_symmetric",
                                                            "tf_half_pixel_for_nn", "tf_crop_and_resize"}),
        std::pair(rule.rounding, std::vector<std::string_view>{"", "floor", "ceil", "round_prefer_floor",
                                                               "round_prefer_ceil"})}) {
    if (std::ranges::find(known, word) == known.end())
      call.refuse("expected places of pixels by a rule that is known, got ", word);
  }
  rule.cubic = call.attribute("cubic_coeff_a", -0.75);
  rule.excludes_outside = call.attribute("exclude_outside", int64_t{0}) != 0;
  rule.antialias = call.attribute("antialias", int64_t{0}) != 0 && rule.mode != ResizeRule::Mode::nearest;
  rule.outside = call.attribute("extrapolation_value", 0.0);
  return rule;
}

std::vector<int64_t> nearest_pixels(const Call& call, const ResizeRule& rule, const ResizedAxis& axis) {
  std::vector<int64_t> pixels;
  for (int64_t i = 0; i < axis.out; ++i) {
    const int64_t pixel = rounded_place(call, rule, axis, original_place(rule, axis, i));
    pixels.push_back(std::clamp<int64_t>(pixel, 0, axis.in - 1));
  }
  return pixels;
}

Shares pixel_shares(const Call& call, const ResizeRule& rule, const ResizedAxis& axis) {
  Shares made{.shares = std::vector<float>(static_cast<size_t>(axis.in * axis.out), 0),
              .outside = std::vector<bool>(static_cast<size_t>(axis.out), false)};
  const auto add = [&](int64_t pixel, int64_t i, double share) {
    made.shares[static_cast<size_t>(std::clamp<int64_t>(pixel, 0, axis.in - 1) * axis.out + i)] +=
        static_cast<float>(share);
  };
  for (int64_t i = 0; i < axis.out; ++i) {
    const float place = original_place(rule, axis, i);
    made.outside[static_cast<size_t>(i)] = is_out_of_crop(rule, axis, place);
    if (made.outside[static_cast<size_t>(i)]) continue;
    if (rule.mode == ResizeRule::Mode::nearest) {
      add(rounded_place(call, rule, axis, place), i, 1);
      continue;
    }
    PixelWindow window = window_around(rule, axis, place);
    if (rule.excludes_outside && rule.mode == ResizeRule::Mode::cubic) {
      double all = 0;
      for (size_t k = 0; k < window.shares.size(); ++k) {
        const int64_t pixel = window.first + static_cast<int64_t>(k);
        if (pixel < 0 || pixel >= axis.in) window.shares[k] = 0;
        all += window.shares[k];
      }
      for (double& one : window.shares) one /= all;
    }
    for (size_t k = 0; k < window.shares.size(); ++k)
      add(window.first + static_cast<int64_t>(k), i, window.shares[k]);
  }
  return made;
}

}  // namespace ulp::exchange::onnx_import
