// Pooling.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/adaptive_windows.h"
#include "ulp/exchange/coreml/along.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// Windows along one dimension. The last one may end behind the padding, as ceil_mode lets it.
struct Windows {
  int64_t in, out, kernel, stride, pad;
  int64_t behind() const { return std::max<int64_t>((out - 1) * stride + kernel - pad - in, 0); }
  /// What LibTorch divides the sum of window i by where padding counts: what is inside of image and padding.
  int64_t counted(int64_t i) const {
    const int64_t begin = i * stride - pad;
    return std::min(begin + kernel, in + pad) - begin;
  }
};

std::vector<Windows> windows_of(const Node& node, size_t dims) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims),
                             pad = ints_arg(node, "padding", dims, {0}),
                             stride = ints_arg(node, "stride", dims, kernel),
                             from = shape_of(node, *value_arg(node, "self")), to = shape_of(node);
  std::vector<Windows> windows;
  for (size_t d = 0; d < dims; ++d)
    windows.push_back({from[from.size() - dims + d], to[to.size() - dims + d], kernel[d], stride[d], pad[d]});
  return windows;
}

/// ceil_mode as padding behind: MIL has it for two dimensions at most, and counts of its windows by a rule of
/// its own.
Inputs window(Builder& builder, const Node& node, const std::vector<Windows>& windows) {
  const bool ceil = bool_arg(node, "ceil_mode");
  std::vector<int64_t> kernel, stride, pads;
  for (const Windows& one : windows) {
    kernel.push_back(one.kernel);
    stride.push_back(one.stride);
    pads.insert(pads.end(), {one.pad, ceil ? one.behind() : one.pad});
  }
  return {{"x", builder.in(node, "self")},   {"kernel_sizes", builder.ints(kernel)},
          {"strides", builder.ints(stride)}, {"pad_type", builder.word("custom")},
          {"pad", builder.ints(pads)},       {"ceil_mode", builder.flag(false)}};
}

/// Sizes of windows over what LibTorch divides their sums by, for each of the result's pixels.
at::Tensor corrections(const std::vector<Windows>& windows) {
  std::vector<int64_t> shape(windows.size() + 2, 1);
  at::Tensor all = torch::ones(shape, torch::kDouble);
  for (size_t d = 0; d < windows.size(); ++d) {
    std::vector<double> ratios;
    for (int64_t i = 0; i < windows[d].out; ++i)
      ratios.push_back(static_cast<double>(windows[d].kernel) / static_cast<double>(windows[d].counted(i)));
    std::vector<int64_t> along(windows.size() - d, 1);
    along[0] = windows[d].out;
    all = all * torch::tensor(ratios, torch::kDouble).reshape(along);
  }
  return all;
}

/// Windows whose elements are apart, one dimension after the other.
void dilated_max(Builder& builder, const Node& node, const std::vector<Windows>& windows,
                 const std::vector<int64_t>& dilation) {
  Along along(builder, node, *value_arg(node, "self"));
  const int64_t first = std::ssize(along.shape()) - std::ssize(windows);
  for (size_t d = 0; d < windows.size(); ++d) {
    const Windows& one = windows[d];
    const auto elements = window_elements({one.in, one.out, one.kernel, one.stride, dilation[d], one.pad});
    if (elements.empty()) refuse(node, "expected an element of the image in each window");
    along.largest(first + static_cast<int64_t>(d), elements);
  }
  along.finish();
}

template <size_t dims>
void max_pool(Builder& builder, const Node& node) {
  const std::vector<int64_t> dilation = ints_arg(node, "dilation", dims, {1});
  if (dilation != std::vector<int64_t>(dims, 1))
    return dilated_max(builder, node, windows_of(node, dims), dilation);
  builder.result(node, "max_pool", window(builder, node, windows_of(node, dims)));
}

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  const std::vector<Windows> windows = windows_of(node, dims);
  const bool divides = has_arg(node, "divisor_override") && !node.arg("divisor_override").is_none();
  const bool counts = divides || bool_arg(node, "count_include_pad");
  Inputs inputs = window(builder, node, windows);
  inputs.emplace_back("exclude_padding_from_average", builder.flag(!counts));
  at::Tensor by = torch::ones({1}, torch::kDouble);
  if (divides) {
    double elements = 1;
    for (const Windows& one : windows) elements *= static_cast<double>(one.kernel);
    by = by * (elements / number_arg(node, "divisor_override"));
  } else if (counts && bool_arg(node, "ceil_mode")) {
    by = corrections(windows);
  }
  if (by.eq(1).all().item<bool>()) return builder.result(node, "avg_pool", std::move(inputs));
  const std::string mean = builder.call(node, "avg_pool", std::move(inputs));
  builder.result(node, "mul",
                 {{"x", mean}, {"y", builder.constant(by.to(type_of(*node.output())), "of_windows")}});
}

/// Windows of several sizes, one dimension after the other.
void adaptive_apart(Builder& builder, const Node& node, const std::vector<int64_t>& out, bool average) {
  Along along(builder, node, *value_arg(node, "self"));
  const int64_t first = std::ssize(along.shape()) - std::ssize(out);
  for (size_t d = 0; d < out.size(); ++d) {
    const int64_t dim = first + static_cast<int64_t>(d), in = along.shape().at(static_cast<size_t>(dim));
    if (out[d] == in) continue;
    if (!average) {
      along.largest(dim, adaptive_elements(in, out[d]));
      continue;
    }
    along.product(dim, adaptive_averages(in, out[d]));
  }
  along.finish();
}

/// All of the image, or windows of one size.
void adaptive(Builder& builder, const Node& node, size_t dims, const char* global, const char* pool) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  std::vector<int64_t> kernel, axes;
  for (size_t d = 0; d < dims; ++d) {
    axes.push_back(static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    const int64_t size = fixed_size(node, x, axes.back());
    if (out[d] < 1) refuse(node, "expected an output size of 1 or more, got ", out[d]);
    kernel.push_back(size % out[d] == 0 ? size / out[d] : 0);
  }
  const bool average = std::string_view(pool) == "avg_pool";
  if (std::ranges::find(kernel, 0) != kernel.end()) return adaptive_apart(builder, node, out, average);
  if (out == std::vector<int64_t>(dims, 1))
    return builder.result(node, global, reduction(builder, builder.name_of(&x), axes, /*keep=*/true));
  Inputs inputs = {{"x", builder.name_of(&x)},
                   {"kernel_sizes", builder.ints(kernel)},
                   {"strides", builder.ints(kernel)},
                   {"pad_type", builder.word("valid")},
                   {"ceil_mode", builder.flag(false)}};
  if (average) inputs.emplace_back("exclude_padding_from_average", builder.flag(false));
  builder.result(node, pool, std::move(inputs));
}

template <size_t dims>
void adaptive_avg(Builder& builder, const Node& node) {
  adaptive(builder, node, dims, "reduce_mean", "avg_pool");
}

template <size_t dims>
void adaptive_max(Builder& builder, const Node& node) {
  if (!builder.graph().users(node.output(1)).empty()) refuse(node, "expected nobody to read the indices");
  adaptive(builder, node, dims, "reduce_max", "max_pool");
}

}  // namespace

ConverterTable pool_converters() {
  static constexpr Converter kTable[] = {{"aten::max_pool1d", max_pool<1>},
                                         {"aten::max_pool2d", max_pool<2>},
                                         {"aten::max_pool3d", max_pool<3>},
                                         {"aten::avg_pool1d", avg_pool<1>},
                                         {"aten::avg_pool2d", avg_pool<2>},
                                         {"aten::avg_pool3d", avg_pool<3>},
                                         {"aten::adaptive_avg_pool1d", adaptive_avg<1>},
                                         {"aten::adaptive_avg_pool2d", adaptive_avg<2>},
                                         {"aten::adaptive_avg_pool3d", adaptive_avg<3>},
                                         {"aten::adaptive_max_pool1d", adaptive_max<1>},
                                         {"aten::adaptive_max_pool2d", adaptive_max<2>},
                                         {"aten::adaptive_max_pool3d", adaptive_max<3>}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
