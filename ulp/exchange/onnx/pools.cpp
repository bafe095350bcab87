// Pooling.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

Attributes window(const Node& node, size_t dims) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims);
  std::vector<int64_t> pads = ints_arg(node, "padding", dims, {0});
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
  builder.result(node, "AveragePool", {builder.in(node, "self")}, average_window(node, dims));
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

Attributes average_window(const Node& node, size_t dims) {
  Attributes attributes = window(node, dims);
  attributes.push_back({"count_include_pad", int64_t{bool_arg(node, "count_include_pad")}});
  return attributes;
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
