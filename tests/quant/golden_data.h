// The data of tests/golden/make_observers.py and make_quant_graphs.py, made again bit for bit.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::quant::test {

inline std::vector<float> uniform(uint64_t seed, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (auto& value : out) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(seed >> 40) * 0x1p-24F;
  }
  return out;
}

/// Small multiples of `step`, which is a power of two.
inline at::Tensor dyadic(uint64_t seed, at::IntArrayRef shape, int64_t levels, float step) {
  const at::Tensor out = at::empty(shape, at::kFloat);
  float* data = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    data[i] = static_cast<float>(static_cast<int64_t>(seed >> 40) % levels - levels / 2) * step;
  }
  return out;
}

inline at::Tensor make(const std::string& kind, uint64_t seed, int64_t count) {
  const at::Tensor u = torch::tensor(uniform(seed, count));
  const at::Tensor v = 2 * u - 1;
  if (kind == "uniform") return u;
  if (kind == "normal") {
    at::Tensor total = u - 0.5;
    for (uint64_t k = 1; k < 4; ++k) total = total + (torch::tensor(uniform(seed + k, count)) - 0.5);
    return total;
  }
  if (kind == "heavy") return v * v * v * v * v * v * v * 10;
  if (kind == "cauchy") return v / (1 - v.abs() + 0x1p-10);
  if (kind == "one_sided") return at::clamp_min(v, 0) * 3;
  if (kind == "negative") return -(u * u) - 1;
  if (kind == "huge") return v * 1e30;
  if (kind == "tiny") return v * 1e-12;
  if (kind == "constant") return at::full({count}, 0.75);
  if (kind == "zero") return at::zeros({count});
  if (kind == "spike") {
    at::Tensor out = at::zeros({count});
    out[count / 3] = 5;
    return out;
  }
  fail("test", "expected a known distribution, got ", kind);
}

}  // namespace ulp::quant::test
