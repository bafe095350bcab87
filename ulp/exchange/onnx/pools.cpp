// Pooling.
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

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  if (has_arg(node, "divisor_override") && !node.arg("divisor_override").is_none())
    refuse(node, "expected no divisor_override");
  AverageWindow window =
      average_window(builder, node, *value_arg(node, "self"), builder.in(node, "self"), dims);
  builder.result(node, "AveragePool", {window.x}, std::move(window.attributes));
}

/// Whether the last window of an average reaches past the padding, as ceil_mode lets it: OpenVINO then divides by all of the window where
/// LibTorch counts what lies inside. Windows that ceil_mode drops again, and free sizes, are left to the operator.
bool ends_outside(const Node& node, const Value& in, size_t dims) {
  if (!bool_arg(node, "ceil_mode")) return false;
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims),
                             pad = ints_arg(node, "padding", dims, {0}),
                             stride = ints_arg(node, "stride", dims, kernel);
  const std::vector<graph::SizeExpr>&from = sizes_of(node, in), &to = sizes_of(node, *node.output());
  bool outside = false;
  for (size_t d = 0; d < dims; ++d) {
    const graph::SizeExpr &whole = from[from.size() - dims + d], &windows = to[to.size() - dims + d];
    if (!whole.constant() || !windows.constant()) return false;
    const int64_t padded = whole.offset + 2 * pad[d], count = windows.offset;
    if (count != (padded - kernel[d] + stride[d] - 1) / stride[d] + 1)
      return false;  // the last one was dropped
    const int64_t end = (count - 1) * stride[d] + kernel[d];
    outside = outside || end > padded;
  }
  return outside;
}

/// All of the image, or windows of one size.
void adaptive(Builder& builder, const Node& node, size_t dims, const char* global, const char* pool) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  std::vector<int64_t> kernel;
  bool whole = true;
  for (size_t d = 0; d < dims; ++d) {
    whole = whole && out[d] == 1;
    const int64_t size = fixed_size(node, x, static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    if (out[d] < 1 || size % out[d] != 0)
      refuse(node, "expected an output size that divides the input's ", size, ", got ", out[d]);
    kernel.push_back(size / out[d]);
  }
  if (whole) return builder.result(node, global, {builder.name_of(&x)});
  builder.result(node, pool, {builder.name_of(&x)}, {{"kernel_shape", kernel}, {"strides", kernel}});
}

template <size_t dims>
void adaptive_avg(Builder& builder, const Node& node) {
  adaptive(builder, node, dims, "GlobalAveragePool", "AveragePool");
}

template <size_t dims>
void adaptive_max(Builder& builder, const Node& node) {
  if (!builder.graph().users(node.output(1)).empty()) refuse(node, "expected nobody to read the indices");
  adaptive(builder, node, dims, "GlobalMaxPool", "MaxPool");
}

}  // namespace

AverageWindow average_window(Builder& builder, const Node& node, const Value& in, const std::string& x,
                             size_t dims) {
  const bool counts = bool_arg(node, "count_include_pad");
  if (!counts || !ends_outside(node, in, dims)) {
    Attributes attributes = window(node, dims);
    attributes.push_back({"count_include_pad", int64_t{counts}});
    return {x, std::move(attributes)};
  }
  std::vector<int64_t> before(static_cast<size_t>(rank_of(node, in)) - dims);
  for (const int64_t pad : ints_arg(node, "padding", dims, {0})) before.push_back(pad);
  std::vector<int64_t> pads = before;
  pads.insert(pads.end(), before.begin(), before.end());
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
                                         {"aten::adaptive_max_pool2d", adaptive_max<2>}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
