// Numbers and small models that the tests of fp8 share.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "ulp/amp/fp8/fp8_recipe.h"

namespace ulp::test {

/// The values of tests/golden/make_fp8.py.
inline at::Tensor golden_values(uint64_t seed, std::vector<int64_t> sizes) {
  at::Tensor x = torch::empty(sizes);
  auto* data = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto bits = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761U + seed * 40503U) >> 8;
    data[i] = (static_cast<float>(bits) / 16777216.0F - 0.5F) * std::exp2(static_cast<float>(i % 13 - 6));
  }
  return x;
}

inline amp::Fp8LayerRecipe with(amp::Fp8Scaling scaling) {
  amp::Fp8LayerRecipe recipe;
  recipe.scaling = scaling;
  return recipe;
}

inline std::vector<amp::Fp8LayerRecipe> every_recipe() {
  std::vector<amp::Fp8LayerRecipe> all;
  for (const auto& word : EnumNames<amp::Fp8Scaling>::list) all.push_back(with(word.value));
  return all;
}

/// Multiples of 1/8 up to 1 in size: every format here holds them where its scale is a power of two, so that products are
/// exact.
inline at::Tensor eighths(at::IntArrayRef sizes, uint64_t seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  return torch::randint(-8, 9, sizes, random, torch::kFloat) / 8;
}

}  // namespace ulp::test
