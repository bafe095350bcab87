// One small call for each operation that a built-in policy lists.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace ulp::test {

/// The dtypes of a sample's floating tensors.
enum class Inputs { fp32, bf16, mixed };  ///< mixed: bf16 first, then fp32 and bf16 in turn

/// Arguments that the operation accepts. Throws for an operator that the dispatcher does not know.
std::vector<c10::IValue> sample_arguments(const std::string& target, Inputs inputs);

/// Calls the operator through the dispatcher.
void call(const std::string& target, std::vector<c10::IValue> arguments);

}  // namespace ulp::test
