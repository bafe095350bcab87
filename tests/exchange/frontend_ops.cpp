#include "frontend_ops.h"

#include <sstream>

namespace ulp::test {

namespace {

using T = at::Tensor;
using Results = std::vector<T>;
using TensorSizes = std::vector<int64_t>;

constexpr const char* kAll = "engine onnx tflite coreml pt2";

template <typename... Parts>
std::string words_of(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Normal numbers, or few whole ones, of which many are equal.
T numbers(Draw& dice, const TensorSizes& sizes) {
  if (dice.coin()) return torch::randn(sizes);
  return torch::randint(-2, 3, sizes).to(torch::kFloat);
}

/// A batch of 1 to 3 and one to three dimensions more.
TensorSizes any_sizes(Draw& dice, int64_t most = 3) {
  TensorSizes sizes = {dice.between(1, 3)};
  for (int64_t d = dice.between(1, most); d > 0; --d) sizes.push_back(dice.between(1, 6));
  return sizes;
}

/// A dimension but the batch, from the front or the back.
int64_t any_dim(Draw& dice, const T& x) {
  const int64_t dim = dice.between(1, x.dim() - 1);
  return dice.coin() ? dim : dim - x.dim();
}

T as_float(const T& places) {
  return places.to(torch::kFloat);
}

FrontendCall on(const T& x, std::string words, std::function<Results(const T&)> body) {
  return {std::move(words), std::move(body), x};
}

// Orders. Places of equal elements are not defined where LibTorch says so: then what lies there is compared.

T found_at(const T& x, const T& places, int64_t dim, bool keep) {
  return x.gather(dim, keep ? places : places.unsqueeze(dim));
}

FrontendCall draw_median(Draw& dice) {
  const T x = torch::randn(any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const bool keep = dice.coin();
  return on(x, words_of("median(", dim, ", ", keep, ")"), [=](const T& v) {
    const auto [values, places] = v.median(dim, keep);
    return Results{values, found_at(v, places, dim, keep)};
  });
}

FrontendCall draw_kthvalue(Draw& dice) {
  const T x = torch::randn(any_sizes(dice));
  const int64_t dim = any_dim(dice, x), k = dice.between(1, x.size(dim));
  const bool keep = dice.coin();
  return on(x, words_of("kthvalue(", k, ", ", dim, ", ", keep, ")"), [=](const T& v) {
    const auto [values, places] = v.kthvalue(k, dim, keep);
    return Results{values, found_at(v, places, dim, keep)};
  });
}

template <bool largest>
FrontendCall draw_running(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  return on(x, words_of(largest ? "cummax(" : "cummin(", dim, ")"), [=](const T& v) {
    const auto [values, places] = largest ? v.cummax(dim) : v.cummin(dim);
    return Results{values, as_float(places)};
  });
}

FrontendCall draw_logcumsumexp(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  return on(x, words_of("logcumsumexp(", dim, ")"), [=](const T& v) { return Results{v.logcumsumexp(dim)}; });
}

FrontendCall draw_aminmax(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const bool keep = dice.coin();
  return on(x, words_of("aminmax(", dim, ", ", keep, ")"), [=](const T& v) {
    const auto [low, high] = v.aminmax(dim, keep);
    return Results{low, high};
  });
}

template <bool root>
FrontendCall draw_var_mean(Draw& dice) {
  TensorSizes sizes = any_sizes(dice);
  sizes.back() = dice.between(3, 6);
  const T x = torch::randn(sizes);
  const TensorSizes dims = dice.coin() && x.dim() > 2 ? TensorSizes{1, -1} : TensorSizes{-1};
  const int64_t correction = dice.between(0, 2);
  const bool keep = dice.coin();
  return on(x, words_of(root ? "std_mean(" : "var_mean(", dims, ", ", correction, ", ", keep, ")"),
            [=](const T& v) {
              const auto [spread, mean] =
                  root ? at::std_mean(v, at::OptionalIntArrayRef(dims), correction, keep)
                       : at::var_mean(v, at::OptionalIntArrayRef(dims), correction, keep);
              return Results{spread, mean};
            });
}

FrontendCall draw_nansum(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const bool keep = dice.coin();
  return on(x, words_of("nansum(", dim, ", ", keep, ")"), [=](const T& v) {
    return Results{at::nansum(v, dim, keep), as_float(at::count_nonzero(v, std::optional<int64_t>(dim)))};
  });
}

FrontendCall draw_cumprod(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  return on(x, words_of("cumprod(", dim, ")"), [=](const T& v) { return Results{v.cumprod(dim)}; });
}

FrontendCall draw_max_places(Draw& dice) {
  const int64_t kernel = dice.between(1, 3);
  const T x = numbers(dice, {dice.between(1, 2), 2, dice.between(kernel, 7), dice.between(kernel, 7)});
  const int64_t stride = dice.between(1, 3), pad = dice.between(0, kernel / 2);
  const bool ceil = dice.coin();
  return on(x, words_of("max_pool2d_with_indices(", kernel, ", ", stride, ", ", pad, ", ", ceil, ")"),
            [=](const T& v) {
              const auto [values, places] =
                  at::max_pool2d_with_indices(v, {kernel, kernel}, {stride, stride}, {pad, pad}, 1, ceil);
              return Results{values, as_float(places)};
            });
}

FrontendCall draw_adaptive_places(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 2), 2, dice.between(3, 7), dice.between(3, 7)});
  const TensorSizes out = {dice.between(1, 3), dice.between(1, 3)};
  return on(x, words_of("adaptive_max_pool2d(", out, ")"), [=](const T& v) {
    const auto [values, places] = at::adaptive_max_pool2d(v, out);
    return Results{values, as_float(places)};
  });
}

FrontendCall draw_unpool(Draw& dice) {
  const int64_t kernel = dice.between(1, 3);
  const T x = torch::randn({dice.between(1, 2), 2, kernel * dice.between(1, 3), kernel * dice.between(1, 3)});
  return on(x, words_of("max_unpool2d(", kernel, ")"), [=](const T& v) {
    const auto [values, places] = at::max_pool2d_with_indices(v, {kernel, kernel});
    return Results{at::max_unpool2d(values, places, {v.size(2), v.size(3)})};
  });
}

// Functions.

template <at::Tensor (*function)(const T&, const T&)>
FrontendCall draw_pair(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const T other = dice.coin() ? numbers(dice, {x.size(-1)}) : T();
  return on(x, other.defined() ? "with a row" : "with itself in reverse", [=](const T& v) {
    return Results{function(v, other.defined() ? other : v.flip({v.dim() - 1}))};
  });
}

T sign_bits(const T& a, const T& b) {
  return torch::signbit(a).to(torch::kFloat) + torch::signbit(b).to(torch::kFloat) * 2;
}

template <at::Tensor (*function)(const T&)>
FrontendCall draw_single(Draw& dice) {
  return on(numbers(dice, any_sizes(dice)), "", [=](const T& v) { return Results{function(v)}; });
}

FrontendCall draw_copysign_number(Draw& dice) {
  const double number = dice.one_of({2.0, -2.0, 0.0, -0.0});
  return on(numbers(dice, any_sizes(dice)), words_of("copysign(", number, ")"),
            [=](const T& v) { return Results{torch::copysign(v, number)}; });
}

FrontendCall draw_bucketize(Draw& dice) {
  const bool right = dice.coin(), narrow = dice.coin();
  const T bounds = std::get<0>(numbers(dice, {dice.between(1, 5)}).sort(0));
  return on(numbers(dice, any_sizes(dice)), words_of("bucketize(", bounds.size(0), ", ", right, ")"),
            [=](const T& v) { return Results{as_float(torch::bucketize(v, bounds, narrow, right))}; });
}

FrontendCall draw_searchsorted(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const bool right = dice.coin();
  return on(x, words_of("searchsorted(", right, ")"), [=](const T& v) {
    const T sorted = std::get<0>(v.nan_to_num(0, 9, -9).sort(-1));
    return Results{as_float(torch::searchsorted(sorted, v, false, right))};
  });
}

FrontendCall draw_logit(Draw& dice) {
  const bool bounded = dice.coin();
  return on(torch::rand(any_sizes(dice)), words_of("logit(", bounded, ")"),
            [=](const T& v) { return Results{bounded ? torch::logit(v, 1e-2) : torch::logit(v)}; });
}

FrontendCall draw_nan_to_num(Draw& dice) {
  const bool all = dice.coin();
  return on(numbers(dice, any_sizes(dice)), words_of("nan_to_num(", all, ")"), [=](const T& v) {
    return Results{all ? torch::nan_to_num(v, 0.5, 7, -7) : torch::nan_to_num(v)};
  });
}

// Moves.

FrontendCall draw_diag_embed(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice, 2));
  const int64_t offset = dice.between(-2, 2);
  const bool swapped = dice.coin();
  return on(x, words_of("diag_embed(", offset, ", ", swapped, ")"), [=](const T& v) {
    return Results{swapped ? torch::diag_embed(v, offset, -1, 1) : torch::diag_embed(v, offset)};
  });
}

FrontendCall draw_diagonal(Draw& dice) {
  TensorSizes sizes = {dice.between(1, 3), dice.between(3, 6), dice.between(3, 6)};
  if (dice.coin()) sizes.insert(sizes.begin() + 1, 3);
  const T x = numbers(dice, sizes);
  const int64_t offset = dice.between(-2, 2);
  const bool front = x.dim() == 3 || dice.coin();
  return on(x, words_of("diagonal(", offset, ")"),
            [=](const T& v) { return Results{v.diagonal(offset, front ? 1 : -1, front ? 2 : -2)}; });
}

FrontendCall draw_rot90(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 3), dice.between(1, 4), dice.between(1, 4), dice.between(1, 4)});
  const int64_t turns = dice.between(-3, 5), first = dice.between(1, 2);
  return on(x, words_of("rot90(", turns, ", ", first, ")"), [=](const T& v) {
    return Results{torch::rot90(v, turns, {first, -1}) * 1};
  });
}

FrontendCall draw_unfold(Draw& dice) {
  TensorSizes sizes = any_sizes(dice);
  sizes.back() = dice.between(3, 7);
  const T x = numbers(dice, sizes);
  const int64_t size = dice.between(1, 3), step = dice.between(1, 3);
  return on(x, words_of("unfold(", size, ", ", step, ")"),
            [=](const T& v) { return Results{v.unfold(-1, size, step) * 1}; });
}

FrontendCall draw_triangle(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 3), dice.between(1, 5), dice.between(1, 5)});
  const int64_t diagonal = dice.between(-2, 2);
  return on(x, words_of("tril, triu(", diagonal, ")"), [=](const T& v) {
    return Results{v.tril(diagonal), v.triu(diagonal)};
  });
}

/// Some places of a dimension, from either end.
T some_places(Draw& dice, int64_t size, bool from_end) {
  std::vector<int64_t> places;
  for (int64_t i = dice.between(1, 3); i > 0; --i) {
    const int64_t place = dice.between(0, size - 1);
    places.push_back(from_end && dice.coin() ? place - size : place);
  }
  return torch::tensor(places, torch::kLong);
}

FrontendCall draw_index_fill(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const T index = some_places(dice, x.size(dim), true);
  return on(x, words_of("index_fill(", dim, ")"),
            [=](const T& v) { return Results{v.index_fill(dim, index, 1.5)}; });
}

FrontendCall draw_index_add(Draw& dice) {
  const T x = torch::randn(any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const T index = some_places(dice, x.size(dim), false);
  const double alpha = dice.coin() ? 1 : -0.5;
  return on(x, words_of("index_add(", dim, ", ", alpha, ")"), [=](const T& v) {
    return Results{v.index_add(dim, index, v.index_select(dim, index) * 2, alpha)};
  });
}

FrontendCall draw_index_copy(Draw& dice) {
  const T x = numbers(dice, any_sizes(dice));
  const int64_t dim = any_dim(dice, x);
  const T index = some_places(dice, x.size(dim), false);
  return on(x, words_of("index_copy(", dim, ")"),
            [=](const T& v) { return Results{v.index_copy(dim, index, v.index_select(dim, index) * 2)}; });
}

/// Places that forward computes: x[x > 0] = 0.5 and its likes.
FrontendCall draw_index_put_mask(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 3), dice.between(1, 5), dice.between(1, 5)});
  const int64_t kind = dice.between(0, 3);
  const bool adds = dice.coin();
  return on(x, words_of("index_put(mask ", kind, adds ? ", accumulate)" : ")"), [=](const T& v) {
    using Places = torch::List<std::optional<T>>;
    const T row = torch::linspace(-1, 2, v.size(2)).view({1, 1, -1});
    const auto put = [&](const Places& places, const T& values) {
      return at::index_put(v, places, values, adds);
    };
    T made;
    if (kind == 0) made = put({v > 0}, torch::full({}, 0.5));
    if (kind == 1) made = put({v.sum(-1) > 0}, row.view({-1}));
    if (kind == 2) made = put({v.sum({1, 2}) > 0}, row);
    if (kind == 3) made = put({{}, row.expand({1, v.size(1), -1})[0] > 0}, v.select(2, 0).slice(1, 0, 1));
    return Results{made};
  });
}

FrontendCall draw_index_put(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 3), dice.between(1, 5), dice.between(1, 5)});
  const T rows = some_places(dice, x.size(1), true), columns = dice.coin() ? T() : rows % x.size(2);
  return on(x, words_of("index_put(", rows.size(0), columns.defined() ? ", two)" : ")"), [=](const T& v) {
    using torch::indexing::Slice;
    T made = v * 1;
    if (columns.defined()) {
      made.index_put_({Slice(), rows, columns}, 0.5);
      return Results{made, v.index({Slice(), rows, columns})};
    }
    made.index_put_({Slice(), rows}, 0.5);
    return Results{made};
  });
}

FrontendCall draw_scattered_parts(Draw& dice) {
  const T x = numbers(dice, {dice.between(1, 3), dice.between(2, 6), dice.between(2, 6)});
  const int64_t dim = any_dim(dice, x), start = dice.between(-2, 1), step = dice.between(1, 2);
  return on(x, words_of("slice_scatter(", dim, ", ", start, ", ", step, ")"), [=](const T& v) {
    T made = v * 1;
    made.select(dim, 0).mul_(3);
    made.slice(dim, start, 100, step).mul_(2);
    return Results{made};
  });
}

// Products.

FrontendCall draw_mv(Draw& dice) {
  const int64_t width = dice.between(1, 5);
  const T x = torch::randn({dice.between(1, 3), width}), vector = torch::randn({width});
  const double alpha = dice.coin() ? 1 : 0.5, beta = dice.coin() ? 0 : 2;
  return on(x, words_of("mv, addmv(", beta, ", ", alpha, ")"), [=](const T& v) {
    return Results{v.mv(vector), torch::addmv(v.select(1, 0), v, vector, beta, alpha)};
  });
}

FrontendCall draw_baddbmm(Draw& dice) {
  const T x = torch::randn({dice.between(1, 3), dice.between(1, 4), dice.between(1, 4)});
  const double alpha = dice.coin() ? 1 : 0.5, beta = dice.one_of({0.0, 1.0, 2.0});
  return on(x, words_of("baddbmm(", beta, ", ", alpha, ")"),
            [=](const T& v) { return Results{torch::baddbmm(v.bmm(v.mT()), v, v.mT() * 2, beta, alpha)}; });
}

FrontendCall draw_cross(Draw& dice) {
  const T x = torch::randn({dice.between(1, 3), 3, dice.between(1, 4)});
  return on(x, "cross(1)", [=](const T& v) {
    return Results{torch::cross(v, v * 2 + 1, 1), torch::linalg_cross(v, (v - 1).slice(2, 0, 1), 1)};
  });
}

/// Amplitudes and phases changed between a transform and the one back.
FrontendCall draw_fourier(Draw& dice) {
  const T x = torch::randn({dice.between(1, 3), dice.between(1, 5), dice.between(1, 6)});
  const int64_t dim = any_dim(dice, x);
  const std::string norm = dice.one_of({"backward", "ortho", "forward"});
  return on(x, words_of("rfft, irfft(", dim, ", ", norm, ")"), [=](const T& v) {
    const T spectrum = torch::fft::rfft(v, std::nullopt, dim, norm);
    return Results{torch::fft::irfft(spectrum * 2, v.size(dim), dim, norm), torch::abs(spectrum),
                   torch::view_as_real(spectrum)};
  });
}

FrontendCall draw_fourier_planes(Draw& dice) {
  const T x = torch::randn({dice.between(1, 3), dice.between(2, 5), dice.between(2, 6)});
  const std::string norm = dice.one_of({"backward", "ortho", "forward"});
  return on(x, words_of("fft2, ifft2(", norm, ")"), [=](const T& v) {
    const T spectrum = torch::fft::fft2(v, at::OptionalIntArrayRef(), {-2, -1}, norm);
    const T half = torch::fft::rfft2(v, at::OptionalIntArrayRef(), {-2, -1}, norm);
    return Results{torch::real(torch::fft::ifft2(spectrum, at::OptionalIntArrayRef(), {-2, -1}, norm)),
                   torch::real(torch::fft::fft(torch::fft::fft(v, std::nullopt, -1), std::nullopt, -2)),
                   torch::fft::irfft2(half * half, at::IntArrayRef{v.size(1), v.size(2)}, {-2, -1}, norm)};
  });
}

T heaviside_of(const T& a, const T& b) {
  return torch::heaviside(a, b);
}
/// Core ML's log(0) is -103.
T xlogy_of(const T& a, const T& b) {
  return torch::xlogy(a, b.abs() + 0.5);
}
T sinc_of(const T& a) {
  return torch::sinc(a);
}
T angles(const T& a) {
  return torch::deg2rad(a) + torch::rad2deg(a);
}
T whole_infinities(const T& a) {
  return torch::isposinf(a).to(torch::kFloat) - torch::isneginf(a).to(torch::kFloat);
}

}  // namespace

std::span<const FrontendOp> frontend_orders() {
  static constexpr FrontendOp kOps[] = {{"median", draw_median, "", "", "tflite"},
                                        {"kthvalue", draw_kthvalue, "", "", "tflite"},
                                        {"cummax", draw_running<true>},
                                        {"cummin", draw_running<false>},
                                        {"logcumsumexp", draw_logcumsumexp},
                                        {"aminmax", draw_aminmax},
                                        {"var_mean", draw_var_mean<false>, "", "", kAll},
                                        {"std_mean", draw_var_mean<true>, "", "", kAll},
                                        {"nansum, count_nonzero", draw_nansum},
                                        {"cumprod", draw_cumprod},
                                        {"places of max_pool2d", draw_max_places},
                                        {"places of adaptive_max_pool2d", draw_adaptive_places},
                                        {"max_unpool2d", draw_unpool}};
  return kOps;
}

std::span<const FrontendOp> frontend_functions() {
  static constexpr FrontendOp kOps[] = {{"hypot", draw_pair<at::hypot>},
                                        {"copysign", draw_pair<at::copysign>},
                                        {"copysign of a number", draw_copysign_number},
                                        {"heaviside", draw_pair<heaviside_of>},
                                        {"signbit", draw_pair<sign_bits>},
                                        {"fmax", draw_pair<at::fmax>},
                                        {"fmin", draw_pair<at::fmin>},
                                        {"logaddexp", draw_pair<at::logaddexp>},
                                        {"logaddexp2", draw_pair<at::logaddexp2>},
                                        {"xlogy", draw_pair<xlogy_of>, "", "", "coreml"},
                                        {"ldexp", draw_pair<at::ldexp>},
                                        {"bucketize", draw_bucketize},
                                        {"searchsorted", draw_searchsorted},
                                        {"logit", draw_logit, "", "", "coreml"},
                                        {"nan_to_num", draw_nan_to_num},
                                        {"sinc", draw_single<sinc_of>},
                                        {"erfc", draw_single<at::erfc>},
                                        {"frac", draw_single<at::frac>},
                                        {"exp2", draw_single<at::exp2>},
                                        {"deg2rad, rad2deg", draw_single<angles>},
                                        {"isposinf, isneginf", draw_single<whole_infinities>}};
  return kOps;
}

std::span<const FrontendOp> frontend_moves() {
  static constexpr FrontendOp kOps[] = {{"diag_embed", draw_diag_embed},
                                        {"diagonal", draw_diagonal},
                                        {"rot90", draw_rot90},
                                        {"Tensor::unfold", draw_unfold},
                                        {"tril, triu of values", draw_triangle},
                                        {"index_fill", draw_index_fill},
                                        {"index_put mask", draw_index_put_mask},
                                        {"index_add", draw_index_add},
                                        {"index_copy", draw_index_copy},
                                        {"index_put", draw_index_put},
                                        {"writes to parts", draw_scattered_parts}};
  return kOps;
}

std::span<const FrontendOp> frontend_products() {
  static constexpr FrontendOp kOps[] = {{"mv, addmv", draw_mv, "", "", kAll},
                                        {"baddbmm", draw_baddbmm, "", "", kAll},
                                        {"cross", draw_cross, "", "", kAll},
                                        {"rfft, irfft", draw_fourier, "", "", kAll},
                                        {"fft2, ifft2", draw_fourier_planes, "", "", kAll}};
  return kOps;
}

}  // namespace ulp::test
