// Normalisation.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
constexpr double kEpsilon = 1e-5;

void batch_norm(Call& call) {
  // ONNX keeps this share of the running statistics, LibTorch takes the rest from the batch.
  const double kept = call.attribute("momentum", 0.9);
  const Tensor x = call.x(0);
  Tensor mean = call.x(3), var = call.x(4);
  call.set(at::batch_norm(x, call.x(1), call.x(2), mean, var, call.training(),
                          decimal(static_cast<float>(1 - kept)), call.attribute("epsilon", kEpsilon),
                          /*cudnn_enabled=*/true));
}

/// Of each sample and channel.
void instance_norm(Call& call) {
  call.set(at::instance_norm(call.x(0), call.x(1), call.x(2), {}, {}, /*use_input_stats=*/true,
                             /*momentum=*/0.1, call.attribute("epsilon", kEpsilon), /*cudnn_enabled=*/true));
}

std::vector<int64_t> sizes_from(const Call& call, const Tensor& x) {
  return x.sizes().slice(static_cast<size_t>(call.dim(call.attribute("axis", int64_t{-1}), x.dim()))).vec();
}

void layer_norm(Call& call) {
  if (call.wants(1) || call.wants(2)) call.refuse("expected nobody to ask for means and deviations");
  const Tensor x = call.x(0);
  call.set(at::layer_norm(x, sizes_from(call, x), call.optional(1), call.optional(2),
                          call.attribute("epsilon", kEpsilon)));
}

void rms_norm(Call& call) {
  const Tensor x = call.x(0);
  call.set(at::rms_norm(x, sizes_from(call, x), call.optional(1), call.attribute("epsilon", kEpsilon)));
}

void group_norm(Call& call) {
  constexpr int64_t kPerChannel = 21;  // before, scale and bias had one number a group
  const Tensor x = call.x(0);
  const int64_t groups = call.attribute("num_groups", int64_t{1});
  Tensor scale = call.x(1), bias = call.x(2);
  if (call.opset() < kPerChannel) {
    if (groups < 1 || x.dim() < 2 || x.size(1) % groups != 0)
      call.refuse("expected groups that divide the channels");
    const int64_t size = x.size(1) / groups;
    scale = scale.repeat_interleave(size);
    bias = bias.repeat_interleave(size);
  }
  call.set(at::group_norm(x, groups, scale, bias, call.attribute("epsilon", kEpsilon)));
}

void lp_norm(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{-1}), x.dim());
  call.set(at::div(x, at::linalg_vector_norm(x, static_cast<double>(call.attribute("p", int64_t{2})), dim,
                                             /*keepdim=*/true)));
}

}  // namespace

ConverterTable norm_table() {
  static constexpr Converter kTable[] = {
      {"BatchNormalization", batch_norm, first_input}, {"InstanceNormalization", instance_norm, first_input},
      {"LayerNormalization", layer_norm, first_input}, {"RMSNormalization", rms_norm, first_input},
      {"GroupNormalization", group_norm, first_input}, {"LpNormalization", lp_norm, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
