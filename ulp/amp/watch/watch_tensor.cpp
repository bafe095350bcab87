#include "ulp/amp/watch/watch_tensor.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

bool is_countable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() &&
         (tensor.layout() == at::kStrided || tensor.layout() == at::kSparse) && !tensor.is_meta();
}

at::Tensor countable_block(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor block = tensor.is_sparse() ? tensor.coalesce()._values() : tensor;
  if (!block.device().is_cpu()) block = block.to(at::kCPU);
  if (!libtorch::data_type_of(block.scalar_type())) block = block.to(at::kFloat);  // the 8-bit formats
  return block.is_non_overlapping_and_dense() ? block : block.contiguous();
}

kernels::ExponentStats block_stats(const at::Tensor& block, uint64_t cut) {
  const auto type = libtorch::data_type_of(block.scalar_type());
  if (!type || !block.is_non_overlapping_and_dense()) {
    fail("amp.block_stats", "expected a dense block of fp32, bf16, fp16 or fp64, got ", block.dtype());
  }
  return kernels::exponent_stats(*type, block.const_data_ptr(), block.numel(), cut, kernels::selected_isa(),
                                 libtorch::TorchParallel());
}

std::vector<int64_t> index_at(const at::Tensor& block, int64_t offset) {
  std::vector<int64_t> index;
  for (int64_t d = 0; d < block.dim(); ++d) {
    index.push_back(block.size(d) > 1 ? offset / block.stride(d) % block.size(d) : 0);
  }
  return index;
}

double value_at(const at::Tensor& block, int64_t offset) {
  const at::NoGradGuard no_grad;
  return block.as_strided({}, {}, block.storage_offset() + offset).item<double>();
}

}  // namespace ulp::amp
