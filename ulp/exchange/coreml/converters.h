// Which function writes a call of the graph as operations of a Core ML program. Each file of such functions ends in its own table, which
// converters.cpp gathers: an op is one function and one line of one file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ulp/exchange/calls.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/coreml/builder.h"

namespace ulp::exchange::coreml {

using Converter = ConverterRow<Builder>;
using ConvertFunction = Converter::Function;
using ConverterTable = std::span<const Converter>;

/// Null for an op without one.
ConvertFunction find_converter(const graph::Node& node);
/// Whether a call has a form for the arguments that it has.
bool has_form(const graph::Node& node);
/// The ops that have one.
std::vector<std::string_view> converter_names();

/// The element types in which operations compute, where they are fewer than tensors can hold.
std::span<const PeerTypes> peer_types();

// What files share. Shapes are those of results.

/// `op` of x and y.
std::string binary(Builder& builder, const graph::Node& node, const char* op, const std::string& x,
                   const std::string& y);
std::string reshaped(Builder& builder, const graph::Node& node, const std::string& x, Type type);
std::string transposed(Builder& builder, const graph::Node& node, const std::string& x,
                       const std::vector<int64_t>& order, Type type);
/// The result of a reduction ("reduce_mean") over dimensions.
Inputs reduction(Builder& builder, const std::string& x, const std::vector<int64_t>& dims, bool keep);
/// The node's result: x with this factor and this summand for each channel, dimension 1.
void scale_channels(Builder& builder, const graph::Node& node, const std::string& x, const at::Tensor& factor,
                    const at::Tensor& summand);
/// From `begin` to `end`, the latter left out, in one dimension of a value of this shape.
struct Slice {
  int64_t dim, begin, end, step = 1;
  bool drop = false;  ///< the dimension goes: index `begin` of it
};
Inputs sliced(Builder& builder, const std::string& x, const std::vector<int64_t>& shape, const Slice& slice);

}  // namespace ulp::exchange::coreml
