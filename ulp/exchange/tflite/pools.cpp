// Pooling. Averages of the format leave its own padding out; zeros that count are written around the image before.
#include "ulp/exchange/tflite/converters.h"

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

template <size_t dims>
Windows pool_windows(const Builder& builder, const Node& node) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims);
  const bool dilates = has_arg(node, "dilation");
  const std::vector<int64_t> dilation =
      dilates ? ints_arg(node, "dilation", dims, {1}) : std::vector<int64_t>(dims, 1);
  if (dilation != std::vector<int64_t>(dims, 1)) refuse(node, "expected a pooling without dilation");
  return windows_of(builder, node, *value_arg(node, "self"), *node.output(), kernel,
                    ints_arg(node, "stride", dims, kernel), dilation, ints_arg(node, "padding", dims, {0}));
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
  pool(builder, node, Operation::MAX_POOL_2D, pool_windows<dims>(builder, node),
       builder.has_codes(node.args[0].value));
}

bool has_padding(const Windows& windows) {
  return windows.height.pad > 0 || windows.width.pad > 0;
}

/// Refuses averages over what lies outside of image and padding, which count by no rule of the format.
void check_average(const Node& node, const Windows& windows, bool counts_padding) {
  const auto reaches_out = [](const Window& one) { return one.behind() > one.pad; };
  if (reaches_out(windows.height) || reaches_out(windows.width))
    refuse(node, "expected windows that end inside of the image and its padding");
  if (!counts_padding && has_padding(windows) && padded(windows.height, windows.width).apart)
    refuse(node, "expected padding that counts, or as much of it as SAME has");
}

/// Where padding counts, it must not be left to the operator.
void average(Builder& builder, const Node& node, const Windows& windows, bool counts_padding, bool integer) {
  check_average(node, windows, counts_padding);
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

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  if (has_arg(node, "divisor_override") && !node.arg("divisor_override").is_none())
    refuse(node, "expected no divisor_override");
  average(builder, node, pool_windows<dims>(builder, node), bool_arg(node, "count_include_pad"),
          /*integer=*/false);
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

template <size_t dims>
void adaptive_avg(Builder& builder, const Node& node) {
  average(builder, node, adaptive_windows<dims>(builder, node), /*counts_padding=*/true, /*integer=*/false);
}

template <size_t dims>
void adaptive_max(Builder& builder, const Node& node) {
  if (!builder.graph().users(node.output(1)).empty()) refuse(node, "expected nobody to read the indices");
  pool(builder, node, Operation::MAX_POOL_2D, adaptive_windows<dims>(builder, node),
       builder.has_codes(node.args[0].value));
}

/// The mean of a whole image or sequence, from codes to codes of any steps; other windows where the steps are one.
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
  // The operator rounds so in all kernels. A quarter of the sums of a 2x2 window lie in the middle of two codes; the rules differ
  // in half of these.
  if (text_arg(node, "rounding") != "half_away")
    refuse(node,
           "expected an average that rounds what lies in the middle of two codes away from code 0, as "
           "the format does and Recipe::tflite_int8 has it, got ",
           text_arg(node, "rounding"));
  const Windows windows = windows_of(builder, node, x, *node.output(), kernel, ints_arg(node, "stride", dims),
                                     std::vector<int64_t>(dims, 1), ints_arg(node, "padding", dims, {0}));
  average(builder, node, windows, bool_arg(node, "count_include_pad"), /*integer=*/true);
}

}  // namespace

ConverterTable pool_converters() {
  static constexpr Converter kTable[] = {{"aten::max_pool1d", max_pool<1>},
                                         {"aten::max_pool2d", max_pool<2>},
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
