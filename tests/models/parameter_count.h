// How many numbers a network learns.
#pragma once

#include <torch/torch.h>

inline int64_t parameter_count(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}
