#include "ulp/quant/methods/layer_rows.h"

#include <torch/utils.h>

#include <algorithm>
#include <vector>

#include "ulp/graph/passes/pattern.h"

namespace ulp::quant {
namespace {

using graph::Node;

constexpr int64_t kPartNumbers = int64_t{1} << 24;

std::vector<int64_t> spatial(const Node& conv, const char* name, size_t dims) {
  return graph::spread(graph::integers(conv.arg(name)).value_or(std::vector<int64_t>{}), dims);
}

/// Windows [N, C, out..., taps...] of a batch of images, sequences or volumes.
at::Tensor windows_of(const Node& conv, const at::Tensor& weight, const at::Tensor& batch) {
  const auto dims = static_cast<size_t>(weight.dim() - 2);
  const auto padding = spatial(conv, "padding", dims), stride = spatial(conv, "stride", dims),
             dilation = spatial(conv, "dilation", dims);
  std::vector<int64_t> pads;
  for (size_t d = dims; d-- > 0;) pads.insert(pads.end(), 2, padding[d]);
  at::Tensor x = at::constant_pad_nd(batch, pads);
  for (size_t d = 0; d < dims; ++d) {
    const auto at_dim = static_cast<int64_t>(d) + 2;
    x = x.unfold(at_dim, (weight.size(at_dim) - 1) * dilation[d] + 1, stride[d])
            .slice(-1, 0, std::nullopt, dilation[d]);
  }
  return x;
}

/// As [groups, rows, columns].
at::Tensor conv_rows(const Node& conv, const at::Tensor& weight, const at::Tensor& batch) {
  const int64_t dims = weight.dim() - 2, groups = groups_of(conv);
  const at::Tensor windows = windows_of(conv, weight, batch);
  std::vector<int64_t> order = {0};
  for (int64_t d = 0; d < dims; ++d) order.push_back(2 + d);
  order.push_back(1);
  for (int64_t d = 0; d < dims; ++d) order.push_back(2 + dims + d);
  return windows.permute(order).reshape({-1, groups, weight[0].numel()}).transpose(0, 1);
}

}  // namespace

int64_t groups_of(const Node& layer) {
  return layer.is("aten::linear") ? 1 : graph::integer(layer.arg("groups")).value_or(1);
}

at::Tensor as_matrices(const Node& layer, const at::Tensor& like) {
  const int64_t groups = groups_of(layer);
  return like.reshape({groups, like.size(0) / groups, -1});
}

void for_rows(const Node& layer, const at::Tensor& weight, const at::Tensor& first, const at::Tensor& second,
              FunctionRef<void(const at::Tensor& first, const at::Tensor& second)> use) {
  if (layer.is("aten::linear")) {
    const auto rows = [&](const at::Tensor& x) { return x.reshape({1, -1, weight.size(1)}).to(at::kFloat); };
    return use(rows(first), rows(second));
  }
  const auto batch_of = [&](const at::Tensor& x) {
    return (x.dim() < weight.dim() ? x.unsqueeze(0) : x).to(at::kFloat);
  };
  const at::Tensor a = batch_of(first), b = batch_of(second);
  if (a.size(0) == 0) return;
  const int64_t each = std::max<int64_t>(windows_of(layer, weight, a.slice(0, 0, 1)).numel(), 1);
  const int64_t part = std::max<int64_t>(kPartNumbers / each, 1);
  for (int64_t i = 0; i < a.size(0); i += part)
    use(conv_rows(layer, weight, a.slice(0, i, i + part)), conv_rows(layer, weight, b.slice(0, i, i + part)));
}

}  // namespace ulp::quant
