// Tensors for the tests of storage, and their comparison by bits.
#pragma once

#include <torch/torch.h>

#include <cstring>
#include <string>
#include <vector>

namespace ulp::test {

/// Same dtype, shape and bits: NaN equals itself, and -0 is not 0.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// Normal numbers of which a share `density` is kept, drawn by a generator of its own.
inline at::Tensor sparse_normal(at::IntArrayRef shape, double density, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor values = torch::randn(shape, generator);
  return at::where(torch::rand(shape, generator) < density, values, torch::zeros({}));
}

/// The same with `count` different values at most.
inline at::Tensor sparse_shared(at::IntArrayRef shape, double density, int64_t count, uint64_t seed) {
  const at::Tensor values = sparse_normal(shape, density, seed);
  const at::Tensor steps =
      (values * (static_cast<double>(count) / 6)).round().clamp(-count / 2, count / 2 - 1);
  const at::Tensor kept = at::where(steps == 0, torch::ones({}), steps);
  return at::where(values == 0, values, kept * 0.0371);
}

}  // namespace ulp::test
