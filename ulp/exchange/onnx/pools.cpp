// Pooling.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/adaptive_windows.h"
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

Attributes window(const Node& node, size_t dims, bool padded = true) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims);
  std::vector<int64_t> pads(dims);
  if (padded) pads = ints_arg(node, "padding", dims, {0});
  for (size_t d = 0; d < dims; ++d) pads.push_back(pads[d]);
  return {{"kernel_shape", kernel},
          {"strides", ints_arg(node, "stride", dims, kernel)},
          {"pads", pads},
          {"ceil_mode", int64_t{bool_arg(node, "ceil_mode")}}};
}

template <size_t dims>
void max_pool(Builder& builder, const Node& node) {
  Attributes attributes = window(node, dims);
  attributes.push_back({"dilations", ints_arg(node, "dilation", dims, {1})});
  builder.result(node, "MaxPool", {builder.in(node, "self")}, std::move(attributes));
}

/// Sums of windows by a divisor that the call names: averages of whole windows, padding as numbers among
/// them, times what the divisors differ by.
void sum_pool(Builder& builder, const Node& node, size_t dims);

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  if (has_arg(node, "divisor_override") && !node.arg("divisor_override").is_none())
    return sum_pool(builder, node, dims);
  AverageWindow window =
      average_window(builder, node, *value_arg(node, "self"), builder.in(node, "self"), dims);
  builder.result(node, "AveragePool", {window.x}, std::move(window.attributes));
}

/// Windows of an average along one dimension.
struct Windows {
  int64_t in, out, kernel, stride, pad;
  int64_t end() const {
    return (out - 1) * stride + kernel - pad;
  }  ///< of the last one, from the image's first element on
  /// It reaches past the padding, as ceil_mode lets it: OpenVINO then divides by all of the window where
  /// LibTorch counts what lies inside.
  bool ends_outside() const { return end() > in + pad; }
};

/// Empty where sizes are free.
std::vector<Windows> windows_of(const Node& node, const Value& in, size_t dims) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims),
                             pad = ints_arg(node, "padding", dims, {0}),
                             stride = ints_arg(node, "stride", dims, kernel);
  const std::vector<graph::SizeExpr>&from = sizes_of(node, in), &to = sizes_of(node, *node.output());
  std::vector<Windows> windows;
  for (size_t d = 0; d < dims; ++d) {
    const graph::SizeExpr &whole = from[from.size() - dims + d], &count = to[to.size() - dims + d];
    if (!whole.constant() || !count.constant()) return {};
    windows.push_back({whole.offset, count.offset, kernel[d], stride[d], pad[d]});
  }
  return windows;
}

void sum_pool(Builder& builder, const Node& node, size_t dims) {
  const Value& x = *value_arg(node, "self");
  const std::vector<Windows> windows = windows_of(node, x, dims);
  if (windows.empty()) refuse(node, "expected an image whose sides are numbers beside a divisor_override");
  const auto rank = static_cast<size_t>(rank_of(node, x));
  std::vector<int64_t> pads(2 * rank, 0);
  double elements = 1;
  for (size_t d = 0; d < dims; ++d) {
    pads[rank - dims + d] = windows[d].pad;
    pads[2 * rank - dims + d] = std::max<int64_t>(windows[d].end() - windows[d].in, 0);
    elements *= static_cast<double>(windows[d].kernel);
  }
  const std::string padded = builder.call(node, "Pad", {builder.name_of(&x), builder.ints(pads)});
  Attributes attributes = window(node, dims, /*padded=*/false);
  std::erase_if(attributes, [](const Attribute& one) { return one.name == "ceil_mode"; });
  const std::string average = builder.call(node, "AveragePool", {padded}, std::move(attributes));
  const double factor = elements / number_arg(node, "divisor_override");
  builder.result(node, "Mul", {average, builder.scalar(factor, type_of(*node.output()))});
}

/// All of the image, or windows of one size.
void adaptive(Builder& builder, const Node& node, size_t dims, const char* global, const char* pool) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  if (std::ranges::min(out) < 1)
    refuse(node, "expected output sizes of 1 or more, got ", std::ranges::min(out));
  std::vector<int64_t> kernel;
  bool whole = true;
  for (size_t d = 0; d < dims; ++d) {
    whole = whole && out[d] == 1;
    const int64_t size = fixed_size(node, x, static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    if (size % out[d] != 0)
      refuse(node, "expected an output size that divides the input's ", size, ", got ", out[d]);
    kernel.push_back(size / out[d]);
  }
  if (whole) return builder.result(node, global, {builder.name_of(&x)});
  builder.result(node, pool, {builder.name_of(&x)}, {{"kernel_shape", kernel}, {"strides", kernel}});
}

/// Windows of several sizes: a product with the averages for each dimension.
void uneven_averages(Builder& builder, const Node& node, size_t dims) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  const int64_t last = rank_of(node, x) - 1;
  std::string name = builder.name_of(&x);
  for (size_t d = dims; d-- > 0;) {
    const int64_t dim = last - static_cast<int64_t>(dims - 1 - d);
    const at::Tensor shares =
        adaptive_averages(fixed_size(node, x, dim), out[d]).t().contiguous().to(type_of(*node.output()));
    std::vector<int64_t> order;
    for (int64_t i = 0; i <= last; ++i) order.push_back(i == dim ? last : i == last ? dim : i);
    const bool turns = dim != last;
    name = builder.call(node, "MatMul",
                        {turns ? transposed(builder, node, name, order) : name, builder.constant(shares)});
    if (turns) name = transposed(builder, node, name, order);
  }
  builder.alias(node.output(), name);
}

/// The largest of windows of several sizes: picks of each dimension [results, elements], and their largest.
void uneven_maxima(Builder& builder, const Node& node, size_t dims) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  const int64_t rank = rank_of(node, x);
  std::string name = builder.name_of(&x);
  for (size_t d = 0; d < dims; ++d) {
    const int64_t dim = rank - static_cast<int64_t>(dims - d);
    std::vector<at::Tensor> rows;
    for (const std::vector<int64_t>& window : adaptive_elements(fixed_size(node, x, dim), out[d]))
      rows.push_back(torch::tensor(window, torch::kLong));
    const std::string taps =
        builder.call(node, "Gather", {name, builder.constant(at::stack(rows))}, {{"axis", dim}});
    name = reduced(builder, node, "ReduceMax", taps, {dim + 1}, /*keep=*/false);
  }
  builder.alias(node.output(), name);
}

/// Whether an adaptive pool has windows of several sizes. False where an output size is below 1, which
/// adaptive() refuses.
bool has_uneven_windows(const Node& node, size_t dims) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  bool uneven = false;
  for (size_t d = 0; d < dims; ++d) {
    if (out[d] < 1) return false;
    const int64_t size = fixed_size(node, x, static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    uneven = uneven || size % out[d] != 0;
  }
  return uneven;
}

template <size_t dims>
void adaptive_avg(Builder& builder, const Node& node) {
  if (has_uneven_windows(node, dims)) return uneven_averages(builder, node, dims);
  adaptive(builder, node, dims, "GlobalAveragePool", "AveragePool");
}

template <size_t dims>
void adaptive_max(Builder& builder, const Node& node) {
  if (!builder.graph().users(node.output(1)).empty()) refuse(node, "expected nobody to read the indices");
  if (has_uneven_windows(node, dims)) return uneven_maxima(builder, node, dims);
  adaptive(builder, node, dims, "GlobalMaxPool", "MaxPool");
}

}  // namespace

AverageWindow average_window(Builder& builder, const Node& node, const Value& in, const std::string& x,
                             size_t dims) {
  const bool counts = bool_arg(node, "count_include_pad");
  const std::vector<Windows> windows = windows_of(node, in, dims);
  if (!counts || !bool_arg(node, "ceil_mode") || !std::ranges::any_of(windows, &Windows::ends_outside)) {
    Attributes attributes = window(node, dims);
    attributes.push_back({"count_include_pad", int64_t{counts}});
    return {x, std::move(attributes)};
  }
  // Padding that is there as numbers counts by itself. Behind, no window begins in it.
  const auto rank = static_cast<size_t>(rank_of(node, in));
  std::vector<int64_t> pads(2 * rank, 0);
  for (size_t d = 0; d < dims; ++d) {
    pads[rank - dims + d] = windows[d].pad;
    pads[2 * rank - dims + d] = std::min(windows[d].end() - windows[d].in, windows[d].pad);
  }
  return {builder.call(node, "Pad", {x, builder.ints(pads)}), window(node, dims, /*padded=*/false)};
}

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

}  // namespace ulp::exchange::onnx
