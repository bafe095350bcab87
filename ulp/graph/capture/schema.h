// Operator schemas by name, and the small facts about tensors and targets that editing and capture share.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::graph {

/// The schema of "aten::add.Tensor"; throws ulp::Error for an operator the dispatcher does not know.
const c10::FunctionSchema& find_schema(const std::string& target);

/// The arguments with the schema's defaults behind them; throws ulp::Error on too many or a missing one.
std::vector<Argument> complete_arguments(const c10::FunctionSchema& schema, const std::string& target,
                                         std::vector<Argument> args);

/// "add" for "aten::add_.Tensor".
std::string short_name(const std::string& target);

/// Whether the operator draws random numbers.
bool is_random(const c10::FunctionSchema& schema);

/// Whether the argument is a data type.
bool is_dtype(const c10::Argument& argument);

/// Whether results of this type are tensors or lists of them.
bool is_tensor_list(const c10::Type& type);

/// dtype, layout and fixed sizes of a tensor.
TensorMeta meta_of(const at::Tensor& tensor);

/// True for a dense 4-d tensor in NHWC order, telling apart the shapes where both orders coincide by strides.
bool is_channels_last(const at::Tensor& tensor);

}  // namespace ulp::graph
