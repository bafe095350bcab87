#include "ulp/amp/scaling/unscale.h"

#include <torch/optim/optimizer.h>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

// Tensors that one call of the foreach kernel may take.
struct Bucket {
  c10::Device device;
  c10::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

void check(const at::Tensor& gradient, size_t group, size_t index) {
  constexpr const char* kWhere = "amp.GradScaler.unscale_";
  if (gradient.scalar_type() == c10::kHalf) {
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

// Duplicate indices of a sparse gradient are summed first: the sums are what the parameter will see.
at::Tensor values_of(at::Tensor& gradient) {
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

std::vector<at::Tensor> unscale_gradients(torch::optim::Optimizer& optimizer, float inverse_scale,
                                          bool test_unscaled) {
  const at::NoGradGuard no_grad;
  const auto for_each_gradient = [&](const auto& visit) {
    for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
      auto& parameters = optimizer.param_groups()[group].params();
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].defined() && parameters[i].grad().defined())
          visit(parameters[i].mutable_grad(), group, i);
      }
    }
  };
  for_each_gradient([](at::Tensor& gradient, size_t group, size_t i) { check(gradient, group, i); });

  std::vector<Bucket> buckets;
  for_each_gradient([&](at::Tensor& gradient, size_t, size_t) { add(buckets, values_of(gradient)); });

  std::vector<at::Tensor> found_inf;
  for (Bucket& bucket : buckets) {
    at::Tensor& found = on_device(found_inf, bucket.device);
    check_and_multiply(bucket, found, inverse_scale);
    if (test_unscaled && inverse_scale > 1) check_and_multiply(bucket, found, 1);
  }
  return found_inf;
}

}  // namespace ulp::amp
