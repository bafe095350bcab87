// Whether what a graph gives is what its model gives, to the bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace ulp::graph {

/// How two tensors differ, as the end of a sentence ("has 3 of 12 elements that differ, ..."); empty where dtype, sizes
/// and the bits of every element are the same. NaN is any NaN; +0 is not -0; strides are not compared.
std::string tensor_difference(const at::Tensor& model, const at::Tensor& graph);

/// The same for results: tensors, lists and tuples of them, and other values, which are to be equal. Starts with
/// the place, `where` or "where[1]".
std::string result_difference(const c10::IValue& model, const c10::IValue& graph, const std::string& where);

/// A value for messages, on one line: numbers, words and lists as they are, "Tensor" for a tensor.
std::string short_text(const c10::IValue& value);

}  // namespace ulp::graph
