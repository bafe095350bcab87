// Inputs beside a program, from which compilers of PyTorch take sizes to begin with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace ulp::exchange::pt2 {

/// Type and sizes of a tensor.
struct SampleInput {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes;
};

/// The bytes that torch.load() reads as ((zeros of each input...), {}): a zip file with a pickle of protocol
/// 2 and the memory of each tensor. Every function that it names is one that torch.load(weights_only=True)
/// takes.
std::string pickled_samples(const std::vector<SampleInput>& inputs);

}  // namespace ulp::exchange::pt2
