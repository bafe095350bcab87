// Runs an engine on LibTorch tensors, for evaluation and tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {
namespace runtime {
class Engine;
struct TensorInfo;
}  // namespace runtime

/// The engine's first output for all items of the batch of `input`, computed `batch` items at a time, of as
/// many rows each as the engine's input has (TensorInfo::times). Free dimensions are set to the input's
/// sizes, and no run continues an earlier one. Throws ulp::Error for an engine with several inputs, and for
/// an input of sizes that the engine does not take.
ULP_API at::Tensor run_engine(runtime::Engine& engine, const at::Tensor& input, int64_t batch = 64);

/// All outputs, for all inputs, in one run. Inputs of another type or memory format are brought to the
/// engine's. Throws ulp::Error for another number of inputs, for sizes other than the engine's, for
/// inputs of different batch sizes, and for numbers that an input of integers does not have, such as 2.5.
ULP_API std::vector<at::Tensor> run_engine_all(runtime::Engine& engine,
                                               const std::vector<at::Tensor>& inputs);

/// Something to feed an engine's input with: standard normal numbers, id 0, which every table has, where the
/// input holds integers, and any bytes where it holds those. The engine's sizes, with `batch` for the batch.
ULP_API at::Tensor random_input(const runtime::TensorInfo& info, int64_t batch);

}  // namespace ulp
