// Pooling. Averages of the format leave its own padding out; zeros that count are written around the image
// before.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulp/exchange/adaptive_windows.h"
#include "ulp/exchange/tflite/along.h"
#include "ulp/exchange/tflite/runs.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

schema::Pool2DOptionsT options_of_pool(const Windows& windows, const Padded& how) {
  schema::Pool2DOptionsT options;
  options.padding = how.word;
  options.stride_h = static_cast<int32_t>(windows.height.stride);
  options.stride_w = static_cast<int32_t>(windows.width.stride);
  options.filter_height = static_cast<int32_t>(windows.height.kernel);
  options.filter_width = static_cast<int32_t>(windows.width.kernel);
  return options;
}

/// LibTorch's pools take images without a batch, too; here dimensions are counted behind batch and channels.
void expect_batch(const Node& node, size_t rank) {
  constexpr std::string_view kPool = "pool";
  const std::string& target = node.target();
  const size_t dims = static_cast<size_t>(target.at(target.find(kPool) + kPool.size()) - '0');
  if (rank != dims + 2)
    refuse(node, "expected images with a batch, of ", dims + 2, " dimensions, got ", rank);
}

template <size_t dims>
Windows pool_windows(const Builder& builder, const Node& node) {
  expect_batch(node, sizes_of(node, *value_arg(node, "self")).size());
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims);
  return windows_of(builder, node, *value_arg(node, "self"), *node.output(), kernel,
                    ints_arg(node, "stride", dims, kernel), std::vector<int64_t>(dims, 1),
                    ints_arg(node, "padding", dims, {0}));
}

/// The windows along each dimension behind the channels, of any number of dimensions.
std::vector<Window> all_windows(const Builder& builder, const Node& node) {
  const Shape from = builder.shape_of(node, *value_arg(node, "self")),
              to = builder.shape_of(node, *node.output());
  expect_batch(node, from.sizes.size());
  const size_t dims = from.sizes.size() - 2;
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims),
                             stride = ints_arg(node, "stride", dims, kernel),
                             pad = ints_arg(node, "padding", dims, {0});
  const std::vector<int64_t> dilation =
      has_arg(node, "dilation") ? ints_arg(node, "dilation", dims, {1}) : std::vector<int64_t>(dims, 1);
  std::vector<Window> all;
  for (size_t d = 0; d < dims; ++d)
    all.push_back({from.sizes[2 + d], to.sizes[2 + d], kernel[d], stride[d], dilation[d], pad[d]});
  return all;
}

/// Along one dimension after the other: `write(image, axis of the file, which)`.
template <typename Write>
void pool_each(Builder& builder, const Node& node, bool integer, size_t dims, const Write& write) {
  const Value& x = *value_arg(node, "self");
  const Layout layout = builder.layout_of(&x);
  Index image = builder.tensor_of(node, &x, layout, integer);
  const int64_t rank = rank_of(node, x);
  for (size_t d = 0; d < dims; ++d)
    image = write(image, axis_in(layout, static_cast<int64_t>(2 + d), rank), d);
  builder.place(node.output(), image, layout, integer ? &x : nullptr);
}

/// The largest of each window's elements: what is dilated, or has three dimensions.
void max_by_taps(Builder& builder, const Node& node, const std::vector<Taps>& taps) {
  pool_each(
      builder, node, builder.has_codes(node.args[0].value), taps.size(),
      [&](Index image, int64_t axis, size_t d) { return largest_along(builder, image, axis, taps[d]); });
}

void max_by_taps(Builder& builder, const Node& node) {
  std::vector<Taps> taps;
  for (const Window& window : all_windows(builder, node)) taps.push_back(taps_of(node, window));
  max_by_taps(builder, node, taps);
}

bool is_dilated(const Node& node, size_t dims) {
  return has_arg(node, "dilation") && ints_arg(node, "dilation", dims, {1}) != std::vector<int64_t>(dims, 1);
}

void pool(Builder& builder, const Node& node, Operation op, const Windows& windows, bool integer) {
  const Value& x = *node.args.at(0).value;
  Index image = image_of(builder, node, x, integer);
  const Padded how = padded(windows.height, windows.width);
  if (how.apart)
    image = pad_image(builder, node, image, windows.height, windows.width, op == Operation::MAX_POOL_2D);
  const Index made = builder.make_moved(node, node.output(), Layout::channels_last, &x, integer);
  write_image(builder, node, *node.output(), made, [&](Index out) {
    builder.emit(op, {image}, {out}, options_of(options_of_pool(windows, how)));
  });
}

/// The largest code is the code of the largest number.
template <size_t dims>
void max_pool(Builder& builder, const Node& node) {
  if (is_dilated(node, dims)) return max_by_taps(builder, node);
  pool(builder, node, Operation::MAX_POOL_2D, pool_windows<dims>(builder, node),
       builder.has_codes(node.args[0].value));
}

bool has_padding(const Windows& windows) {
  return windows.height.pad > 0 || windows.width.pad > 0;
}

/// Whether the format's averages count otherwise than LibTorch's: windows that end outside of the image and
/// its padding, or padding that does not count and is not SAME's.
bool counts_otherwise(const Windows& windows, bool counts_padding) {
  const auto reaches_out = [](const Window& one) { return one.behind() > one.pad; };
  if (reaches_out(windows.height) || reaches_out(windows.width)) return true;
  return !counts_padding && has_padding(windows) && padded(windows.height, windows.width).apart;
}

/// Where padding counts, it must not be left to the operator.
void average(Builder& builder, const Node& node, const Windows& windows, bool counts_padding, bool integer) {
  const Padded how = padded(windows.height, windows.width);
  if (how.apart || !counts_padding || !has_padding(windows))
    return pool(builder, node, Operation::AVERAGE_POOL_2D, windows, integer);
  const Value& x = *node.args.at(0).value;
  const Index image =
      pad_image(builder, node, image_of(builder, node, x, integer), windows.height, windows.width,
                /*lowest=*/false);
  const Index made = builder.make_moved(node, node.output(), Layout::channels_last, &x, integer);
  write_image(builder, node, *node.output(), made, [&](Index out) {
    builder.emit(Operation::AVERAGE_POOL_2D, {image}, {out}, options_of(options_of_pool(windows, {})));
  });
}

/// Averages of codes over windows that the format has no word for: what lies outside is cut off, or is
/// written around the image where it counts.
void average_by_runs(Builder& builder, const Node& node, const Windows& windows, bool counts_padding) {
  const Value& x = *node.args.at(0).value;
  Index image = image_of(builder, node, x, /*integer=*/true);
  if (counts_padding)
    image = pad_image(builder, node, image, windows.height, windows.width, /*lowest=*/false);
  const Index made = builder.make_moved(node, node.output(), Layout::channels_last, &x, /*integer=*/true);
  write_image(builder, node, *node.output(), made, [&](Index out) {
    average_runs(builder, node, image, out, spans_of(windows.height, counts_padding),
                 spans_of(windows.width, counts_padding));
  });
}

/// What LibTorch divides the sum of a window along one dimension by: its elements in the image, or in the
/// image and its padding.
std::vector<double> divisors_of(const Window& window, bool counts_padding) {
  std::vector<double> all;
  for (int64_t o = 0; o < window.out; ++o) {
    const int64_t start = o * window.stride - window.pad,
                  end = std::min(start + window.kernel, window.in + window.pad);
    const int64_t inside = std::min(end, window.in) - std::max<int64_t>(start, 0);
    all.push_back(static_cast<double>(counts_padding ? end - start : inside));
  }
  return all;
}

/// Refuses averages of codes that lie in the middle of two codes of the same steps, as every second one of
/// two elements does: a quantize of LiteRT rounds them away from code 0, ours to even.
void check_halves(const Builder& builder, const Node& node, bool odd_divisor) {
  const Value& x = *node.args.at(0).value;
  const Node* reader = graph::only_reader(builder.graph(), node.output());
  if (odd_divisor || !builder.has_codes(&x) || reader == nullptr || !reader->is("ulp::quantize")) return;
  if (builder.steps_of_quantize(*reader) == builder.steps_of(&x))
    refuse(
        node,
        "expected an average of codes with a scale of its own or an odd divisor: the format rounds what lies "
        "in the middle of two codes otherwise");
}

/// Averages of whole windows, zeros around the image among them, times what their divisors differ by.
void average_by_factors(Builder& builder, const Node& node, const Windows& windows, bool counts_padding,
                        std::optional<double> divisor) {
  const auto tensor_of = [](const std::vector<double>& list) { return torch::tensor(list, torch::kDouble); };
  const at::Tensor by_rows = tensor_of(divisors_of(windows.height, counts_padding)).view({1, -1, 1, 1}),
                   by_columns = tensor_of(divisors_of(windows.width, counts_padding)).view({1, 1, -1, 1});
  const auto cells = static_cast<double>(windows.height.kernel * windows.width.kernel);
  const at::Tensor factors =
      divisor ? torch::full({1, 1, 1, 1}, cells / *divisor, torch::kDouble) : cells / (by_rows * by_columns);
  const Value& x = *node.args.at(0).value;
  Index image = image_of(builder, node, x, /*integer=*/false);
  if (!(padded(windows.height, windows.width).word == schema::Padding::VALID &&
        !padded(windows.height, windows.width).apart))
    image = pad_image(builder, node, image, windows.height, windows.width, /*lowest=*/false);
  const Index made = builder.make_numbers(node, node.output(), Layout::channels_last);
  write_image(builder, node, *node.output(), made, [&](Index out) {
    const Index whole = builder.like(out, builder.shape_of_tensor(out));
    builder.emit(Operation::AVERAGE_POOL_2D, {image}, {whole}, options_of(options_of_pool(windows, {})));
    builder.emit(Operation::MUL, {whole, builder.constant(factors.to(at::kFloat))}, {out},
                 options_of(schema::MulOptionsT()));
  });
}

std::optional<double> divisor_of(const Node& node) {
  return has_arg(node, "divisor_override") ? optional_number(node, "divisor_override") : std::nullopt;
}

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  const Windows windows = pool_windows<dims>(builder, node);
  const bool counts_padding = bool_arg(node, "count_include_pad");
  const std::optional<double> divisor = divisor_of(node);
  if (divisor || counts_otherwise(windows, counts_padding)) {
    check_halves(builder, node, divisor && std::fmod(*divisor, 2) == 1);
    return average_by_factors(builder, node, windows, counts_padding, divisor);
  }
  average(builder, node, windows, counts_padding, /*integer=*/false);
}

/// Sums along each dimension, divided by that dimension's elements, as products with stored matrices.
void avg_pool3d(Builder& builder, const Node& node) {
  const std::vector<Window> windows = all_windows(builder, node);
  const bool counts_padding = bool_arg(node, "count_include_pad");
  const std::optional<double> divisor = divisor_of(node);
  pool_each(builder, node, /*integer=*/false, windows.size(), [&](Index image, int64_t axis, size_t d) {
    const Window& window = windows[d];
    const std::vector<double> divisors = divisors_of(window, counts_padding);
    at::Tensor matrix = torch::zeros({window.out, window.in}, torch::kDouble);
    for (int64_t o = 0; o < window.out; ++o) {
      const int64_t start = o * window.stride - window.pad;
      const double by = divisor ? (d == 0 ? *divisor : 1) : divisors[static_cast<size_t>(o)];
      matrix[o].slice(0, std::max<int64_t>(start, 0), std::min(start + window.kernel, window.in)) = 1 / by;
    }
    return product_along(builder, node, image, axis, matrix);
  });
}

/// Windows without gaps, of one size.
template <size_t dims>
Windows adaptive_windows(const Builder& builder, const Node& node) {
  const Value &x = *value_arg(node, "self"), &y = *node.output();
  std::vector<int64_t> kernel;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t in = builder.size_of(sizes_of(node, x).at(2 + d)),
                  out = builder.size_of(sizes_of(node, y).at(2 + d));
    if (in % out != 0) refuse(node, "expected an output size that divides the input's ", in, ", got ", out);
    kernel.push_back(in / out);
  }
  const std::vector<int64_t> ones(dims, 1), none(dims, 0);
  return windows_of(builder, node, x, y, kernel, kernel, ones, none);
}

/// Windows of unequal sizes: the elements of each one, along each dimension.
std::vector<Taps> adaptive_taps(const Builder& builder, const Node& node) {
  const Shape from = builder.shape_of(node, *value_arg(node, "self")),
              to = builder.shape_of(node, *node.output());
  expect_batch(node, from.sizes.size());
  std::vector<Taps> all;
  for (size_t d = 2; d < from.sizes.size(); ++d) {
    const std::vector<std::vector<int64_t>> windows = adaptive_elements(from.sizes[d], to.sizes[d]);
    Taps taps(windows[0].size());
    for (const std::vector<int64_t>& window : windows) {
      for (size_t k = 0; k < taps.size(); ++k) taps[k].push_back(window[k]);
    }
    all.push_back(std::move(taps));
  }
  return all;
}

bool divides(const Builder& builder, const Node& node) {
  const Shape from = builder.shape_of(node, *value_arg(node, "self")),
              to = builder.shape_of(node, *node.output());
  expect_batch(node, from.sizes.size());
  for (size_t d = 2; d < from.sizes.size(); ++d) {
    if (from.sizes[d] % to.sizes[d] != 0) return false;
  }
  return true;
}

/// Means of the windows' elements along one dimension after the other.
void adaptive_avg_by_products(Builder& builder, const Node& node) {
  check_halves(builder, node, /*odd_divisor=*/false);
  const Shape from = builder.shape_of(node, *value_arg(node, "self")),
              to = builder.shape_of(node, *node.output());
  expect_batch(node, from.sizes.size());
  pool_each(builder, node, /*integer=*/false, from.sizes.size() - 2,
            [&](Index image, int64_t axis, size_t d) {
              return product_along(builder, node, image, axis,
                                   adaptive_averages(from.sizes[2 + d], to.sizes[2 + d]));
            });
}

template <size_t dims>
void adaptive_avg(Builder& builder, const Node& node) {
  if (dims > 2 || !divides(builder, node)) return adaptive_avg_by_products(builder, node);
  average(builder, node, adaptive_windows<dims>(builder, node), /*counts_padding=*/true, /*integer=*/false);
}

template <size_t dims>
void adaptive_max(Builder& builder, const Node& node) {
  if (!builder.graph().users(node.output(1)).empty()) refuse(node, "expected nobody to read the indices");
  if (dims > 2 || !divides(builder, node)) return max_by_taps(builder, node, adaptive_taps(builder, node));
  pool(builder, node, Operation::MAX_POOL_2D, adaptive_windows<dims>(builder, node),
       builder.has_codes(node.args[0].value));
}

/// The mean of a whole image or sequence, from codes to codes of any steps; other windows where the steps are
/// one.
void average_codes(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "q");
  const Steps steps = builder.steps_of(node, exchange::type_of(x), "result_scale", "result_zero_point");
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size");
  const auto dims = static_cast<size_t>(rank_of(node, x) - 2);
  if (kernel.empty()) {
    const Index in = builder.codes(node, &x, Layout::channels_last);
    const Index made = builder.make_codes(node, node.output(), Layout::channels_last, steps);
    schema::ReducerOptionsT options;
    options.keep_dims = true;
    const Index axes = builder.ints(dims == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2});
    return builder.emit(Operation::MEAN, {in, axes}, {made}, options_of(std::move(options)));
  }
  if (!(steps == builder.steps_of(&x)))
    refuse(node, "expected an average with the scale of what it averages");
  // The operator rounds so in all kernels. A quarter of the sums of a 2x2 window lie in the middle of two
  // codes; the rules differ in half of these.
  if (text_arg(node, "rounding") != "half_away")
    refuse(node,
           "expected an average that rounds what lies in the middle of two codes away from code 0, as "
           "the format does and Recipe::tflite_int8 has it, got ",
           text_arg(node, "rounding"),
           ": quantize the float model by it (`ulp quantize MODEL --out FILE.tflite`)");
  const Windows windows = windows_of(builder, node, x, *node.output(), kernel, ints_arg(node, "stride", dims),
                                     std::vector<int64_t>(dims, 1), ints_arg(node, "padding", dims, {0}));
  const bool counts_padding = bool_arg(node, "count_include_pad");
  if (counts_otherwise(windows, counts_padding))
    return average_by_runs(builder, node, windows, counts_padding);
  average(builder, node, windows, counts_padding, /*integer=*/true);
}

}  // namespace

ConverterTable pool_converters() {
  static constexpr Converter kTable[] = {{"aten::max_pool1d", max_pool<1>},
                                         {"aten::max_pool2d", max_pool<2>},
                                         {"aten::max_pool3d", max_by_taps},
                                         {"aten::avg_pool3d", avg_pool3d},
                                         {"aten::adaptive_avg_pool3d", adaptive_avg<3>},
                                         {"aten::adaptive_max_pool3d", adaptive_max<3>},
                                         {"aten::avg_pool1d", avg_pool<1>},
                                         {"aten::avg_pool2d", avg_pool<2>},
                                         {"aten::adaptive_avg_pool1d", adaptive_avg<1>},
                                         {"aten::adaptive_avg_pool2d", adaptive_avg<2>},
                                         {"aten::adaptive_max_pool1d", adaptive_max<1>},
                                         {"aten::adaptive_max_pool2d", adaptive_max<2>},
                                         {"ulp::average_codes", average_codes}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
