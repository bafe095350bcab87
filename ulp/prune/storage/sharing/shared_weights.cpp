#include "ulp/prune/storage/sharing/shared_weights.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/base/error.h"

namespace ulp::prune {

using at::Tensor;

SharedWeights cluster_weights(const Tensor& weight, const KMeansOptions& options) {
  constexpr const char* kWhere = "prune.cluster_weights";
  options.validate();
  if (!weight.defined() || !weight.is_floating_point()) fail(kWhere, "expected a floating-point tensor");
  const at::NoGradGuard no_grad;
  const Tensor wide = weight.detach().to(at::kCPU, at::kDouble).contiguous();
  if (!at::isfinite(wide).all().item<bool>())
    fail(kWhere, "expected finite weights, got NaN or infinite ones");
  const auto* values = wide.const_data_ptr<double>();
  std::vector<double> kept;
  for (int64_t i = 0; i < wide.numel(); ++i) {
    if (values[i] != 0) kept.push_back(values[i]);
  }
  const bool sparse = static_cast<int64_t>(kept.size()) < wide.numel();
  const Clusters clusters = cluster(std::move(kept), options);
  SharedWeights shared;
  shared.codebook = clusters.centroids.empty() ? at::zeros({1}, at::kDouble)
                                               : torch::tensor(clusters.centroids, at::kDouble);
  shared.codebook = shared.codebook.to(weight.device(), weight.scalar_type());
  shared.codes = at::zeros(wide.sizes(), at::kByte);
  auto* codes = shared.codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < wide.numel(); ++i) {
    if (values[i] != 0) codes[i] = static_cast<uint8_t>(clusters.nearest(values[i]));
  }
  shared.codes = shared.codes.to(weight.device());
  if (sparse) shared.mask = (wide != 0).to(weight.device());
  return shared;
}

}  // namespace ulp::prune
