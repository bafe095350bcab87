// Normalisation.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
constexpr double kEpsilon = 1e-5;

Tensor in_type(const Tensor& x, at::ScalarType type) {
  return x.scalar_type() == type ? x : x.to(type);
}

/// By the statistics of the batch, in every mode, with the running ones as results: `kept` of those before,
/// the rest from the batch. Numbers, scale and statistics may differ in type: computed in float or wider.
void batch_statistics(Call& call, double kept) {
  const Tensor given = call.x(0);
  if (given.dim() < 2) call.refuse("expected [batch, channels, ...], got ", given.sizes());
  std::vector<int64_t> dims = {0}, along(static_cast<size_t>(given.dim()), 1);
  for (int64_t d = 2; d < given.dim(); ++d) dims.push_back(d);
  along[1] = -1;
  at::ScalarType type = given.scalar_type();
  for (const size_t i : {1, 2, 3, 4}) type = c10::promoteTypes(type, call.x(i).scalar_type());
  if (at::isReducedFloatingType(type)) type = at::kFloat;
  const auto input = [&](size_t i) { return in_type(call.x(i), type); };
  const Tensor x = in_type(given, type);
  const Tensor mean = at::mean(x, dims),
               var = at::var(x, at::OptionalIntArrayRef(dims), /*correction=*/at::Scalar(0));
  const auto over = [&](const Tensor& of_channels) { return at::reshape(of_channels, along); };
  const Tensor scale = at::mul(input(1), at::rsqrt(at::add(var, call.attribute("epsilon", kEpsilon))));
  const Tensor y = at::add(at::mul(at::sub(x, over(mean)), over(scale)), over(input(2)));
  call.set(in_type(y, given.scalar_type()));
  const auto running = [&](size_t i, const Tensor& now) {
    const Tensor moved = at::add(at::mul(input(i), kept), at::mul(now, 1 - kept));
    return in_type(moved, call.x(i).scalar_type());
  };
  call.set(running(3, mean), 1);
  call.set(running(4, var), 2);
}

void batch_norm(Call& call) {
  // ONNX keeps this share of the running statistics, LibTorch takes the rest from the batch.
  const double kept = call.attribute("momentum", 0.9);
  if (call.attribute("spatial", int64_t{1}) == 0)
    call.refuse("expected statistics of channels, got attribute 'spatial' 0: those of each place");
  const Tensor x = call.x(0);
  Tensor mean = call.x(3), var = call.x(4);
  if (call.attribute("training_mode", int64_t{0}) != 0 && (call.wants(1) || call.wants(2)))
    return batch_statistics(call, kept);
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
  const Tensor x = call.x(0);
  if (call.wants(1) || call.wants(2)) {
    const auto [y, mean, deviation] = at::native_layer_norm(
        x, sizes_from(call, x), call.optional(1), call.optional(2), call.attribute("epsilon", kEpsilon));
    call.set(y);
    if (call.wants(1)) call.set(mean, 1);
    if (call.wants(2)) call.set(deviation, 2);  // its inverse, in both
    return;
  }
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

/// Rows of zeros stay as they are.
void lp_norm(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{-1}), x.dim());
  const int64_t p = call.attribute("p", int64_t{2});
  if (p != 1 && p != 2) call.refuse("expected 1 or 2 as attribute 'p', got ", p);
  const Tensor norm = at::linalg_vector_norm(x, static_cast<double>(p), dim, /*keepdim=*/true);
  call.set(at::div(x, at::masked_fill(norm, at::eq(norm, 0), 1)));
}

/// (x - mean) / (deviation + 1e-9), over all dimensions but the channels unless it says others.
void mean_variance_norm(Call& call) {
  constexpr double kSmall = 1e-9;
  const Tensor x = call.x(0);
  std::vector<int64_t> axes = call.attribute("axes", std::vector<int64_t>{0, 2, 3});
  for (int64_t& axis : axes) axis = call.dim(axis, x.dim());
  const Tensor centered = at::sub(x, at::mean(x, axes, /*keepdim=*/true));
  const Tensor variance = at::mean(at::mul(centered, centered), axes, /*keepdim=*/true);
  call.set(at::div(centered, at::add(at::sqrt(variance), kSmall)));
}

/// Over neighbouring channels; the window's larger part lies behind.
void local_response_norm(Call& call) {
  const Tensor x = call.x(0);
  const int64_t size = call.attribute("size", int64_t{0});
  if (x.dim() < 3 || size < 1) call.refuse("expected an input of 3 dimensions or more, and a size above 0");
  const Tensor planes = at::reshape(at::mul(x, x), {x.size(0), 1, x.size(1), -1});
  const Tensor padded = at::constant_pad_nd(planes, {0, 0, (size - 1) / 2, size / 2});
  const Tensor means = at::reshape(at::avg_pool2d(padded, {size, 1}, {1, 1}), x.sizes());
  const double alpha = call.attribute("alpha", 1e-4), beta = call.attribute("beta", 0.75);
  call.set(at::div(x, at::pow(at::add(at::mul(means, alpha), call.attribute("bias", 1.0)), beta)));
}

}  // namespace

ConverterTable norm_table() {
  static constexpr Converter kTable[] = {{"BatchNormalization", batch_norm, first_input},
                                         {"InstanceNormalization", instance_norm, first_input},
                                         {"LayerNormalization", layer_norm, first_input},
                                         {"RMSNormalization", rms_norm, first_input},
                                         {"GroupNormalization", group_norm, first_input},
                                         {"LpNormalization", lp_norm, first_input},
                                         {"LRN", local_response_norm, twice},
                                         {"MeanVarianceNormalization", mean_variance_norm, twice}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
