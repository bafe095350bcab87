// Resize and Upsample: as an operator of LibTorch where that computes the same, else pixel by pixel, or as products with the shares of
// the pixels.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/resize_rule.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using ResizedAxes = std::vector<ResizedAxis>;
using ResizeMode = ResizeRule::Mode;

/// Where the inputs of the three forms of the operator lie.
struct ResizeInputs {
  size_t roi = SIZE_MAX, scales = SIZE_MAX, sizes = SIZE_MAX;
};
ResizeInputs resize_inputs(const Call& call) {
  constexpr int64_t kWithSizes = 11;
  const bool upsample = call.node().op == "Upsample";
  if (!upsample && call.opset() >= kWithSizes) return {.roi = 1, .scales = 2, .sizes = 3};
  return {.scales = 1};
}

/// Factors of all dimensions that the file names; nothing where it says sizes.
std::optional<std::vector<float>> given_scales(Call& call, const ResizeInputs& inputs) {
  if (call.has(inputs.sizes) && call.known(inputs.sizes).numel() > 0) return std::nullopt;
  if (!call.has(inputs.scales)) return call.floats("scales");
  std::vector<float> scales;
  for (const at::Scalar& scale : call.numbers(inputs.scales))
    scales.push_back(static_cast<float>(scale.toDouble()));
  return scales;
}

/// The dimensions that the lists of the operator are of.
std::vector<size_t> named_axes(const Call& call, size_t rank) {
  std::vector<size_t> axes;
  if (call.has_attribute("axes")) {
    for (const int64_t axis : call.attribute("axes", std::vector<int64_t>()))
      axes.push_back(static_cast<size_t>(call.dim(axis, static_cast<int64_t>(rank))));
  } else {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), size_t{0});
  }
  return axes;
}

/// Sizes that keep the sides of an image in proportion.
void keep_aspect_ratio(ResizedAxes& all, const std::vector<size_t>& named, const std::string& policy) {
  if (policy == "stretch") return;
  const bool larger = policy == "not_smaller";
  float scale = larger ? 0 : std::numeric_limits<float>::max();
  for (const size_t d : named) scale = larger ? std::max(scale, all[d].scale) : std::min(scale, all[d].scale);
  for (const size_t d : named) {
    all[d].scale = scale;
    all[d].by_scale = true;
    all[d].out = static_cast<int64_t>(std::round(scale * static_cast<float>(all[d].in)));
  }
}

void read_crop(Call& call, ResizedAxes& all, const std::vector<size_t>& named, const ResizeInputs& inputs) {
  const std::vector<at::Scalar> roi = call.numbers(inputs.roi);
  if (roi.size() != 2 * named.size()) call.refuse("expected two numbers a dimension as the part to resize");
  for (size_t i = 0; i < named.size(); ++i) {
    ResizedAxis& axis = all[named[i]];
    axis.from = static_cast<float>(roi[i].toDouble());
    axis.to = static_cast<float>(roi[i + named.size()].toDouble());
    if (axis.in == axis.out && (axis.from != 0 || axis.to != 1))
      call.refuse("expected another size where a part is resized, got ", axis.out, " of ", axis.in,
                  " pixels, by which runtimes differ");
  }
}

/// All dimensions, from the sizes of the input alone.
ResizedAxes resized_axes(Call& call) {
  constexpr double kLargest = 1e9;
  const std::vector<int64_t> in = call.sizes(0);
  const ResizeInputs inputs = resize_inputs(call);
  const std::vector<size_t> named = named_axes(call, in.size());
  ResizedAxes all(in.size());
  for (size_t d = 0; d < in.size(); ++d) all[d] = {.in = in[d], .out = in[d]};
  const auto scales = given_scales(call, inputs);
  const std::vector<int64_t> sizes = scales ? std::vector<int64_t>() : call.ints(inputs.sizes);
  if ((scales ? scales->size() : sizes.size()) != named.size())
    call.refuse("expected a number for each of ", named.size(), " dimensions");
  for (size_t i = 0; i < named.size(); ++i) {
    ResizedAxis& axis = all[named[i]];
    const float scale = scales ? (*scales)[i] : static_cast<float>(sizes[i]) / static_cast<float>(axis.in);
    const double size =
        scales ? static_cast<double>(scale * static_cast<float>(axis.in)) : static_cast<double>(sizes[i]);
    if (!(size >= 0 && size < kLargest) || !(scale > 0) || axis.in < 1)
      call.refuse("expected factors and sizes above 0, got ", scale, " of ", axis.in, " pixels");
    axis.scale = scale;
    axis.by_scale = scales.has_value();
    axis.out = static_cast<int64_t>(size);
  }
  keep_aspect_ratio(all, named, call.attribute("keep_aspect_ratio_policy", "stretch"));
  if (call.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize")
    read_crop(call, all, named, inputs);
  return all;
}

/// Whether the factor gives whole sizes of each size.
bool is_whole(float scale) {
  return scale == std::floor(scale);
}
bool gives_whole_size(const ResizedAxis& axis) {
  return static_cast<double>(axis.scale) * static_cast<double>(axis.in) == static_cast<double>(axis.out);
}

/// The factor as LibTorch is given it. Where sizes are free, its double arithmetic gives the sizes of ONNX from every size up to that
/// of the input; nothing where none does.
std::optional<double> factor_of(const ResizedAxis& axis, bool free) {
  // A product that is whole in float is a little less in double by some factors, such as 50 * 2.3.
  constexpr double kLittle = 0x1p-26;
  const double wish = decimal(axis.scale);
  for (const double factor :
       {wish, static_cast<double>(axis.scale), std::nextafter(wish, INFINITY), wish * (1 + kLittle)}) {
    bool same = true;
    for (int64_t n = 1; free && n <= axis.in && same; ++n) {
      const auto theirs = static_cast<int64_t>(axis.scale * static_cast<float>(n));
      same = static_cast<int64_t>(static_cast<double>(n) * factor) == theirs;
    }
    if (same) return factor;
  }
  return std::nullopt;
}

/// What LibTorch is told: sizes, and a factor for each dimension that it follows.
struct Told {
  std::vector<int64_t> sizes;
  std::vector<std::optional<double>> factors;
  std::vector<double> all_factors = {};  ///< also where none is needed

  void add(const ResizedAxis& axis, std::optional<double> factor) {
    sizes.push_back(axis.out);
    factors.push_back(factor);
    all_factors.push_back(factor.value_or(decimal(axis.scale)));
  }
  bool any_factor() const {
    return std::ranges::any_of(factors, [](const auto& one) { return one.has_value(); });
  }
};

Tensor upsampled_nearest(const Tensor& x, const Told& told, bool exact) {
  const auto& [to, f, all] = told;
  switch (to.size()) {
    case 1:
      return exact ? at::_upsample_nearest_exact1d(x, to, f[0]) : at::upsample_nearest1d(x, to, f[0]);
    case 2:
      return exact ? at::_upsample_nearest_exact2d(x, to, f[0], f[1])
                   : at::upsample_nearest2d(x, to, f[0], f[1]);
    default:
      return exact ? at::_upsample_nearest_exact3d(x, to, f[0], f[1], f[2])
                   : at::upsample_nearest3d(x, to, f[0], f[1], f[2]);
  }
}

/// The sizes follow those of the input by the factors.
Tensor upsampled_nearest_freely(const Tensor& x, const Told& told, bool exact) {
  const std::vector<double>& f = told.all_factors;
  switch (f.size()) {
    case 1:
      return exact ? at::_upsample_nearest_exact1d(x, std::nullopt, f)
                   : at::upsample_nearest1d(x, std::nullopt, f);
    case 2:
      return exact ? at::_upsample_nearest_exact2d(x, std::nullopt, f)
                   : at::upsample_nearest2d(x, std::nullopt, f);
    default:
      return exact ? at::_upsample_nearest_exact3d(x, std::nullopt, f)
                   : at::upsample_nearest3d(x, std::nullopt, f);
  }
}

Tensor upsampled_smoothly(const Tensor& x, const Told& told, bool cubic, bool corners) {
  const auto& [to, f, all] = told;
  switch (to.size()) {
    case 1:
      return at::upsample_linear1d(x, to, corners, f[0]);
    case 2:
      return cubic ? at::upsample_bicubic2d(x, to, corners, f[0], f[1])
                   : at::upsample_bilinear2d(x, to, corners, f[0], f[1]);
    default:
      return at::upsample_trilinear3d(x, to, corners, f[0], f[1], f[2]);
  }
}

Tensor upsampled_smoothly_freely(const Tensor& x, const Told& told, bool cubic, bool corners) {
  const std::vector<double>& f = told.all_factors;
  switch (f.size()) {
    case 1:
      return at::upsample_linear1d(x, std::nullopt, corners, f);
    case 2:
      return cubic ? at::upsample_bicubic2d(x, std::nullopt, corners, f)
                   : at::upsample_bilinear2d(x, std::nullopt, corners, f);
    default:
      return at::upsample_trilinear3d(x, std::nullopt, corners, f);
  }
}

/// One Resize.
class Resizing {
 public:
  Resizing(Call& call, Tensor x)
      : call_(call),
        x_(std::move(x)),
        rule_(resize_rule(call)),
        axes_(resized_axes(call)),
        free_(call.run().store().has_free_sizes) {
    const bool shrinks = std::ranges::any_of(axes_, [](const ResizedAxis& axis) { return axis.scale < 1; });
    rule_.antialias = rule_.antialias && shrinks;
    const bool exact = std::ranges::all_of(axes_, gives_whole_size);
    if (rule_.place == "half_pixel_symmetric" && exact) rule_.place = "half_pixel";
  }

  Tensor result() {
    const bool same = std::ranges::none_of(axes_, &ResizedAxis::changes);
    if (same) return x_;
    const bool keeps_sizes =
        std::ranges::all_of(axes_, [](const ResizedAxis& axis) { return axis.in == axis.out; });
    if (keeps_sizes && !free_)
      call_.refuse("expected factors that change a size, got others than 1, by which runtimes differ");
    if (free_) check_kept_sizes();
    if (const Tensor made = by_operator(); made.defined()) return made;
    if (const Tensor made = by_free_pixels(); made.defined()) return made;
    if (free_)
      call_.refuse("expected an input whose sizes are numbers, for pixels by ", rule_.place,
                   rule_.mode == ResizeMode::nearest ? " and " + rule_.rounding : "");
    return rule_.mode == ResizeMode::nearest && rule_.place != "tf_crop_and_resize" ? by_pixels()
                                                                                    : by_shares();
  }

 private:
  bool resizes_images() const {
    const size_t rank = axes_.size();
    return rank >= 3 && rank <= 5 && !axes_[0].changes() && !axes_[1].changes() &&
           at::isFloatingType(x_.scalar_type());
  }

  /// A factor below 1.5 makes no small size larger. There LibTorch leaves the factor out, and ONNX
  /// Runtime where all sizes are kept.
  void check_kept_sizes() const {
    if (rule_.place == "align_corners") return;
    for (const ResizedAxis& axis : axes_) {
      if (axis.by_scale && axis.scale > 1 && axis.scale < 1.5F)
        call_.refuse("expected a factor of 1.5 or more, or an input whose sizes are numbers, got ",
                     axis.scale, ", by which small sizes stay as they are");
    }
  }

  /// Undefined where LibTorch computes something else.
  Tensor by_operator() {
    if (!resizes_images()) return {};
    return rule_.mode == ResizeMode::nearest ? nearest() : smooth();
  }

  Tensor nearest() {
    // LibTorch leaves the factor out of doubled sizes in images alone.
    const auto doubles = [](const ResizedAxis& axis) { return axis.scale > 2 && axis.scale < 2.5F; };
    if (free_ && axes_.size() == 4 && std::ranges::any_of(axes_, doubles)) return {};
    for (const bool exact : {false, true}) {
      Told told;
      bool fits = true;
      for (size_t d = 2; d < axes_.size() && fits; ++d) {
        const auto factor = nearest_factor(axes_[d], exact);
        fits = factor.has_value();
        if (fits) told.add(axes_[d], *factor);
      }
      if (!fits) continue;
      return free_ && told.any_factor() ? upsampled_nearest_freely(x_, told, exact)
                                        : upsampled_nearest(x_, told, exact);
    }
    return {};
  }

  /// The factor to tell LibTorch, which may be none, so that it takes the pixels that ONNX says; nothing where it takes others.
  std::optional<std::optional<double>> nearest_factor(const ResizedAxis& axis, bool exact) const {
    const std::vector<int64_t> wanted = nearest_pixels(call_, rule_, axis);
    std::vector<std::optional<double>> candidates;
    if (!axis.by_scale || is_whole(axis.scale) || (!free_ && gives_whole_size(axis)))
      candidates.emplace_back();
    if (axis.by_scale) {
      if (const auto factor = factor_of(axis, free_)) candidates.emplace_back(factor);
    }
    const at::DisableRecordFunctionGuard beside_the_capture;
    const at::NoGradGuard no_grad;
    // LibTorch steps in float, in double for doubles alone.
    const bool wide = x_.scalar_type() == at::kDouble;
    // It leaves the factor out of equal and doubled sizes in images alone.
    const size_t dims = axes_.size() - 2;
    std::vector<int64_t> shape(axes_.size(), 1), sizes(dims, 1);
    std::vector<std::optional<double>> factors(dims);
    shape[2] = axis.in;
    sizes[0] = axis.out;
    const Tensor ramp = at::arange(axis.in, at::TensorOptions(wide ? at::kDouble : at::kFloat)).view(shape);
    for (const std::optional<double>& factor : candidates) {
      factors[0] = factor;
      const Tensor taken =
          upsampled_nearest(ramp, {.sizes = sizes, .factors = factors}, exact).to(at::kLong).contiguous();
      if (std::equal(wanted.begin(), wanted.end(), taken.const_data_ptr<int64_t>())) return factor;
    }
    return std::nullopt;
  }

  Tensor smooth() {
    const bool cubic = rule_.mode == ResizeMode::cubic, corners = rule_.place == "align_corners";
    if (cubic && (axes_.size() != 4 || rule_.cubic != -0.75 || rule_.excludes_outside)) return {};
    if (rule_.antialias) return {};
    const bool half = rule_.place == "half_pixel" || rule_.place == "pytorch_half_pixel";
    if (!corners && !half) return {};
    Told told;
    for (size_t d = 2; d < axes_.size(); ++d) {
      const ResizedAxis& axis = axes_[d];
      // One pixel is the first of the input by pytorch_half_pixel, and the middle by LibTorch.
      const bool one = axis.out == 1 || (free_ && axis.scale < 1);
      if (rule_.place == "pytorch_half_pixel" && one && axis.changes()) return {};
      if (corners) check_corners(axis);
      // LibTorch leaves the factor out where a size is kept, but for bicubic.
      if (!corners && !cubic && axis.in == axis.out && axis.changes()) return {};
      const bool by_sizes =
          !axis.by_scale || is_whole(axis.scale) || (!free_ && (corners || gives_whole_size(axis)));
      const std::optional<double> factor = by_sizes ? std::nullopt : factor_of(axis, free_);
      if (!by_sizes && !factor) return {};
      told.add(axis, factor);
    }
    return free_ && told.any_factor() ? upsampled_smoothly_freely(x_, told, cubic, corners)
                                      : upsampled_smoothly(x_, told, cubic, corners);
  }

  /// ONNX Runtime steps from the first to the last pixel of the sizes, ONNX's reference of the sizes before they are rounded.
  void check_corners(const ResizedAxis& axis) const {
    if (axis.by_scale && axis.scale < 1 && !gives_whole_size(axis))
      call_.refuse("expected factors below 1 that give whole sizes for align_corners, got ", axis.scale,
                   " of ", axis.in, " pixels, by which runtimes differ");
  }

  /// Undefined but for pixels nearest to places that follow factors alone. Their numbers are computed in the
  /// graph as runtimes do it, along a result of LibTorch's that has the sizes.
  Tensor by_free_pixels() {
    const bool by_factors = rule_.place == "asymmetric" || rule_.place == "half_pixel";
    if (!free_ || !by_factors || rule_.mode != ResizeMode::nearest || !resizes_images()) return {};
    Told told;
    for (size_t d = 2; d < axes_.size(); ++d) {
      const ResizedAxis& axis = axes_[d];
      const std::optional<double> factor = factor_of(axis, free_);
      if (!factor || (axis.changes() && !axis.by_scale)) return {};
      told.add(axis, factor);
      check_pixels(axis);
    }
    const Tensor sized = upsampled_nearest_freely(x_, told, /*exact=*/false);
    Tensor y = x_;
    for (int64_t d = 2; d < y.dim(); ++d) {
      const ResizedAxis& axis = axes_[static_cast<size_t>(d)];
      if (axis.changes()) y = at::index_select(y, d, free_pixels(axis, counted(sized, d), counted(x_, d)));
    }
    return y;
  }

  /// 0, 1, ... along a dimension.
  static Tensor counted(Tensor x, int64_t dim) {
    x = at::ones_like(x, at::kFloat);
    for (int64_t behind = x.dim() - 1; behind > dim; --behind) x = at::select(x, behind, 0);
    for (int64_t before = 0; before < dim; ++before) x = at::select(x, 0, 0);
    return at::sub(at::cumsum(x, 0), 1);
  }

  Tensor free_pixels(const ResizedAxis& axis, const Tensor& to, const Tensor& from) const {
    const bool half = rule_.place == "half_pixel";
    // A tensor, by which LibTorch divides; a number's inverse would be multiplied by.
    const Tensor scale = factor_tensor(axis.scale);
    Tensor place = half ? at::sub(at::div(at::add(to, 0.5), scale), 0.5) : at::div(to, scale);
    if (rule_.rounding == "floor" || (rule_.rounding.empty() && axis.scale >= 1)) place = at::floor(place);
    if (rule_.rounding == "ceil" || (rule_.rounding.empty() && axis.scale < 1)) place = at::ceil(place);
    if (rule_.rounding == "round_prefer_floor") place = at::ceil(at::sub(place, 0.5));
    if (rule_.rounding == "round_prefer_ceil") place = at::floor(at::add(place, 0.5));
    return at::minimum(at::clamp_min(place, 0), at::amax(from, 0)).to(at::kLong);
  }

  static Tensor factor_tensor(float scale) {
    const at::DisableRecordFunctionGuard beside_the_capture;
    return torch::full({1}, scale, at::kFloat);
  }

  /// Refuses places that runtimes round to either side.
  void check_pixels(const ResizedAxis& axis) const {
    if (axis.changes()) nearest_pixels(call_, rule_, axis);
  }

  Tensor by_pixels() {
    Tensor y = x_;
    for (size_t d = 0; d < axes_.size(); ++d) {
      if (!axes_[d].changes()) continue;
      const Tensor pixels = constant(nearest_pixels(call_, rule_, axes_[d]));
      y = at::index_select(y, static_cast<int64_t>(d), pixels);
    }
    return y;
  }

  /// Products with the shares, one dimension after the other.
  Tensor by_shares() {
    const at::ScalarType type = x_.scalar_type();
    if (!at::isFloatingType(type)) call_.refuse("expected floats, got ", type);
    const bool narrow = type != at::kFloat && type != at::kDouble;
    Tensor y = narrow ? x_.to(at::kFloat) : x_;
    std::vector<Tensor> masks;
    for (size_t d = 0; d < axes_.size(); ++d) {
      if (!axes_[d].changes()) continue;
      if (rule_.place == "align_corners") check_corners(axes_[d]);
      const Shares made = pixel_shares(call_, rule_, axes_[d]);
      y = along(y, static_cast<int64_t>(d), constant(made.shares, axes_[d], y.scalar_type()));
      if (std::ranges::find(made.outside, true) != made.outside.end()) masks.push_back(mask(made, d));
    }
    for (const Tensor& outside : masks) y = at::masked_fill(y, outside, rule_.outside);
    return narrow ? y.to(type) : y;
  }

  static Tensor along(const Tensor& y, int64_t dim, const Tensor& shares) {
    if (dim == y.dim() - 1) return at::matmul(y, shares);
    return at::transpose(at::matmul(at::transpose(y, dim, -1), shares), dim, -1);
  }

  static Tensor constant(const std::vector<int64_t>& values) {
    const at::DisableRecordFunctionGuard beside_the_capture;
    return torch::tensor(values, at::kLong);
  }
  static Tensor constant(const std::vector<float>& values, const ResizedAxis& axis, at::ScalarType type) {
    const at::DisableRecordFunctionGuard beside_the_capture;
    return torch::tensor(values, at::kFloat).view({axis.in, axis.out}).to(type);
  }
  Tensor mask(const Shares& made, size_t dim) const {
    const at::DisableRecordFunctionGuard beside_the_capture;
    std::vector<int64_t> sizes(axes_.size(), 1);
    sizes[dim] = axes_[dim].out;
    const Tensor flags = torch::empty(sizes, at::kBool);
    std::ranges::copy(made.outside, flags.mutable_data_ptr<bool>());
    return flags;
  }

  Call& call_;
  Tensor x_;
  ResizeRule rule_;
  ResizedAxes axes_;
  bool free_;
};

void resize(Call& call) {
  call.set(Resizing(call, call.x(0)).result());
}

/// The results of all dimensions one after the other, and the shares.
double resized_bound(Call& call) {
  double elements = 1, all = 0, shares = 0;
  const ResizedAxes axes = resized_axes(call);
  for (const ResizedAxis& axis : axes)
    elements *= std::max(static_cast<double>(axis.in), static_cast<double>(axis.out));
  for (const ResizedAxis& axis : axes) {
    if (!axis.changes()) continue;
    all += elements;
    if (resize_rule(call).mode != ResizeMode::nearest || !call.run().store().has_free_sizes)
      shares += static_cast<double>(axis.in) * static_cast<double>(axis.out);
  }
  return std::max(all, elements) + shares;
}

}  // namespace

ConverterTable resize_table() {
  static constexpr Converter kTable[] = {{"Resize", resize, resized_bound},
                                         {"Upsample", resize, resized_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
