// Pooling.
#include <numeric>

#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

Inputs window(Builder& builder, const Node& node, size_t dims) {
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", dims);
  std::vector<int64_t> pads;
  for (const int64_t pad : ints_arg(node, "padding", dims, {0})) pads.insert(pads.end(), {pad, pad});
  return {{"x", builder.in(node, "self")},
          {"kernel_sizes", builder.ints(kernel)},
          {"strides", builder.ints(ints_arg(node, "stride", dims, kernel))},
          {"pad_type", builder.word("custom")},
          {"pad", builder.ints(pads)},
          {"ceil_mode", builder.flag(bool_arg(node, "ceil_mode"))}};
}

template <size_t dims>
void max_pool(Builder& builder, const Node& node) {
  for (const int64_t dilation : ints_arg(node, "dilation", dims, {1})) {
    if (dilation != 1) refuse(node, "expected no dilation, got ", dilation);
  }
  builder.result(node, "max_pool", window(builder, node, dims));
}

template <size_t dims>
void avg_pool(Builder& builder, const Node& node) {
  if (has_arg(node, "divisor_override") && !node.arg("divisor_override").is_none())
    refuse(node, "expected no divisor_override");
  Inputs inputs = window(builder, node, dims);
  inputs.emplace_back("exclude_padding_from_average", builder.flag(!bool_arg(node, "count_include_pad")));
  builder.result(node, "avg_pool", std::move(inputs));
}

/// All of the image, or windows of one size.
void adaptive(Builder& builder, const Node& node, size_t dims, const char* global, const char* pool) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> out = ints_arg(node, "output_size", dims);
  std::vector<int64_t> kernel, axes;
  for (size_t d = 0; d < dims; ++d) {
    axes.push_back(static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    const int64_t size = fixed_size(node, x, axes.back());
    if (out[d] < 1 || size % out[d] != 0)
      refuse(node, "expected an output size that divides the input's ", size, ", got ", out[d]);
    kernel.push_back(size / out[d]);
  }
  if (out == std::vector<int64_t>(dims, 1))
    return builder.result(node, global, reduction(builder, builder.name_of(&x), axes, /*keep=*/true));
  Inputs inputs = {{"x", builder.name_of(&x)},
                   {"kernel_sizes", builder.ints(kernel)},
                   {"strides", builder.ints(kernel)},
                   {"pad_type", builder.word("valid")},
                   {"ceil_mode", builder.flag(false)}};
  if (std::string_view(pool) == "avg_pool")
    inputs.emplace_back("exclude_padding_from_average", builder.flag(false));
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
                                         {"aten::adaptive_max_pool2d", adaptive_max<2>}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
