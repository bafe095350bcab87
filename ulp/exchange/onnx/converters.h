// Which function writes a call of the graph as ONNX nodes. Each file of such functions ends in its own table, which
// converters.cpp gathers: an op is one function and one line of one file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulp/exchange/onnx/builder.h"

namespace ulp::exchange::onnx {

using ConvertFunction = void (*)(Builder&, const graph::Node&);

/// One line of a table.
struct Converter {
  std::string_view op;  ///< "aten::conv2d"
  ConvertFunction convert;
};
using ConverterTable = std::span<const Converter>;

/// Null for an op without one.
ConvertFunction find_converter(const graph::Node& node);
/// "aten::add, aten::conv2d, ...", in alphabetical order.
std::string converter_names();

// What files share.

/// A reshape of `x` to the sizes of the node's output.
void reshape_to_output(Builder& builder, const graph::Node& node, const std::string& x);
/// Attributes of an AveragePool over this many dimensions, from kernel_size, stride, padding and the like.
Attributes average_window(const graph::Node& node, size_t dims);
/// Permuted dimensions.
std::string transposed(Builder& builder, const graph::Node& node, const std::string& x,
                       const std::vector<int64_t>& order);

}  // namespace ulp::exchange::onnx
