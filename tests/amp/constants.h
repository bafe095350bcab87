// Short names that the tests of several files use.
#pragma once

#include <torch/torch.h>

#include <limits>

inline constexpr auto kBF16 = torch::kBFloat16;
inline constexpr auto kFloat = torch::kFloat;
inline constexpr float kInf = std::numeric_limits<float>::infinity();
