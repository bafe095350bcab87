#include "ulp/amp/scaling/unscale.h"

#include <ATen/Functions.h>
#include <torch/optim/optimizer.h>

#include <unordered_set>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

// Tensors that one call of the foreach kernel may take.
struct Bucket {
  c10::Device device;
  c10::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

void check(const at::Tensor& gradient, bool allow_half, size_t group, size_t index) {
  constexpr const char* kWhere = "amp.GradScaler.unscale_";
  if (gradient.scalar_type() == c10::kHalf && !allow_half) {
    fail(kWhere,
         "expected fp32 gradients (keep the parameters in fp32 and let Autocast cast), got fp16 for "
         "parameter ",
         index, " of group ", group);
  }
  if (!gradient.is_floating_point()) {
    fail(kWhere, "expected floating-point gradients, got ", gradient.dtype(), " for parameter ", index,
         " of group ", group);
  }
}

void add(std::vector<Bucket>& buckets, at::Tensor gradient) {
  for (Bucket& bucket : buckets) {
    if (bucket.device == gradient.device() && bucket.dtype == gradient.scalar_type()) {
      bucket.gradients.push_back(std::move(gradient));
      return;
    }
  }
  buckets.push_back({gradient.device(), gradient.scalar_type(), {gradient}});
}

// Duplicate indices of a sparse gradient are summed first: the sums are what the parameter will see. A list
// of tensors to write to may hold none that is negated by a flag.
at::Tensor values_of(at::Tensor& gradient) {
  if (gradient.is_neg()) gradient = gradient.resolve_neg();
  if (!gradient.is_sparse()) return gradient;
  gradient = gradient.coalesce();
  return gradient._values();
}

void check_and_multiply(Bucket& bucket, at::Tensor& found_inf, float factor) {
  const at::Tensor tensor =
      at::full({}, factor, at::TensorOptions().dtype(c10::kFloat).device(bucket.device));
  at::_amp_foreach_non_finite_check_and_unscale_(bucket.gradients, found_inf, tensor);
}

at::Tensor& on_device(std::vector<at::Tensor>& scalars, c10::Device device) {
  for (at::Tensor& scalar : scalars) {
    if (scalar.device() == device) return scalar;
  }
  return scalars.emplace_back(at::zeros({}, at::TensorOptions().dtype(c10::kFloat).device(device)));
}

}  // namespace

std::optional<bool> unscale_gradients(torch::optim::Optimizer& optimizer, float inverse_scale,
                                      const UnscaleOptions& options) {
  const at::NoGradGuard no_grad;
  const auto for_each_gradient = [&](const auto& visit) {
    std::unordered_set<const c10::TensorImpl*> seen;  // LibTorch's optimizers may list a tied weight twice
    for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
      auto& parameters = optimizer.param_groups()[group].params();
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].defined() && parameters[i].grad().defined() &&
            seen.insert(parameters[i].unsafeGetTensorImpl()).second)
          visit(parameters[i].mutable_grad(), group, i);
      }
    }
  };
  for_each_gradient(
      [&](at::Tensor& gradient, size_t group, size_t i) { check(gradient, options.allow_half, group, i); });

  std::vector<Bucket> buckets;
  for_each_gradient([&](at::Tensor& gradient, size_t, size_t) { add(buckets, values_of(gradient)); });

  std::vector<at::Tensor> found_inf;
  for (Bucket& bucket : buckets) {
    at::Tensor& found = on_device(found_inf, bucket.device);
    check_and_multiply(bucket, found, inverse_scale);
    if (options.test_unscaled && inverse_scale > 1) check_and_multiply(bucket, found, 1);
  }
  if (found_inf.empty() || !options.verdict) return std::nullopt;
  bool nonfinite = false;
  for (const at::Tensor& found : found_inf) nonfinite = found.item<float>() != 0 || nonfinite;
  return nonfinite;
}

}  // namespace ulp::amp
