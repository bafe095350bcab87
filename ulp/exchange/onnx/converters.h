// Which function writes a call of the graph as ONNX nodes. Each file of such functions ends in its own table, which
// converters.cpp gathers: an op is one function and one line of one file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulp/exchange/calls.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/onnx/builder.h"

namespace ulp::exchange::onnx {

using Converter = ConverterRow<Builder>;
using ConvertFunction = Converter::Function;
using ConverterTable = std::span<const Converter>;

/// Null for an op without one.
ConvertFunction find_converter(const graph::Node& node);
/// The ops that have one.
std::vector<std::string_view> converter_names();
/// The element types in which ONNX Runtime computes an op, where they are fewer than the file can hold.
std::span<const PeerTypes> peer_types();

// What files share.

/// A reshape of `x` to the sizes of the node's output.
void reshape_to_output(Builder& builder, const graph::Node& node, const std::string& x);
/// An AveragePool over this many dimensions, from kernel_size, stride, padding and the like.
struct AverageWindow {
  std::string x;  ///< what it reads: with its padding where the operator's would be divided otherwise
  Attributes attributes;
};
/// `x` is the name of `in`, or of its numbers.
AverageWindow average_window(Builder& builder, const graph::Node& node, const graph::Value& in,
                             const std::string& x, size_t dims);
/// ReduceMin and the like over dimensions.
std::string reduced(Builder& builder, const graph::Node& node, const std::string& op, const std::string& x,
                    const std::vector<int64_t>& dims, bool keep);
/// A layer's result: `op` of these inputs, plus the argument "bias" where there is one.
void add_bias(Builder& builder, const graph::Node& node, const std::string& op, Names inputs);
/// Whether all that read a stored weight, or the numbers of its codes, are linear layers that want it as [in, out].
bool is_turned(const graph::Graph& graph, const graph::Value& weight);
/// The stored weight [in, out], as GPT-2's are, whose transpose this is; null where it is not one or others than linear layers
/// read it as their weight.
const graph::Value* before_turn(const graph::Graph& graph, const graph::Value& weight);
/// Numbers of stored codes [out, in] as a weight [in, out]: of ulp::dequantize, and of ulp::dequantize_weight.
std::string turned_codes(Builder& builder, const graph::Node& node);
std::string turned_blocks(Builder& builder, const graph::Node& node);
/// A quotient that is rounded down or towards 0.
void divide_whole(Builder& builder, const graph::Node& node);
/// Permuted dimensions.
std::string transposed(Builder& builder, const graph::Node& node, const std::string& x,
                       const std::vector<int64_t>& order);

}  // namespace ulp::exchange::onnx
