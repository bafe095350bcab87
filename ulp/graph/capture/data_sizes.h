// Operators whose results are as large as the numbers of a tensor say: masks, nonzero, unique.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <vector>

namespace ulp::graph {

/// The tensors among a call's arguments whose numbers, beside their sizes, say how large its results are: the bool
/// and uint8 indices of aten::index, the repeats of repeat_interleave without output_size, the tensor of nonzero,
/// unique and bincount. Empty for operators whose results have sizes that follow sizes. `arguments`: all of the
/// schema. The operators are those that PyTorch tags with dynamic_output_shape, and others that call them; not
/// linalg_lstsq and _ctc_loss, of which nobody reads the results in question.
std::vector<at::Tensor> tensors_that_say_sizes(const c10::FunctionSchema& schema,
                                               std::span<const c10::IValue> arguments);

/// What to do in the place of such a call: "multiply by the mask, or use torch::where".
std::string advice_for_sizes(const c10::FunctionSchema& schema);

}  // namespace ulp::graph
