// Steps that are layers: products, convolutions, pooling, norms, recurrent layers and attention.
#include <algorithm>

#include "random_net.h"

namespace ulp::test::recipe {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using Maybe = std::optional<RandomStep>;

template <typename Holder>
std::function<Tensor(const Tensor&)> call(Holder layer) {
  return [layer](const Tensor& a) mutable { return layer->forward(a); };
}

Maybe linear(RandomNet& net, size_t x) {
  const int64_t rank = net.value(x).dim(), in = net.value(x).size(-1), out = net.dice.between(1, 24);
  if (rank < 2 || rank > 4) return {};
  const bool bias = net.dice.coin();
  return step_on(x, say("Linear(", in, ", ", out, bias ? ")" : ", no bias)"),
                 call(net.layer(nn::Linear(nn::LinearOptions(in, out).bias(bias)))));
}

Maybe linear_with_end(RandomNet& net, size_t x) {
  const int64_t rank = net.value(x).dim(), in = net.value(x).size(-1), out = net.dice.between(1, 24);
  if (rank < 2 || rank > 3) return {};
  auto layer = net.layer(nn::Linear(in, out));
  switch (net.dice.below(3)) {
    case 0:
      return step_on(x, say("relu(Linear(", in, ", ", out, "))"),
                     [=](const Tensor& a) mutable { return torch::relu(layer->forward(a)); });
    case 1:
      return step_on(x, say("gelu(Linear(", in, ", ", out, "))"),
                     [=](const Tensor& a) mutable { return F::gelu(layer->forward(a)); });
    default:
      if (in != out) return {};
      return step_on(x, say("a + Linear(", in, ", ", out, ")"),
                     [=](const Tensor& a) mutable { return a + layer->forward(a); });
  }
}

Maybe conv2d(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4) return {};
  const at::IntArrayRef sizes = net.value(x).sizes();
  const int64_t in = sizes[1], groups = net.dice.one_of<int64_t>({1, 1, in, in % 2 == 0 ? 2 : 1});
  const int64_t out = groups * net.dice.between(1, groups > 2 ? 2 : 8);
  const int64_t kernel = net.dice.between(1, 3), pad = net.dice.between(0, 1),
                stride = net.dice.between(1, 2), dilation = net.dice.between(1, 2);
  if (std::min(sizes[2], sizes[3]) + 2 * pad < dilation * (kernel - 1) + 1) return {};
  const bool bias = net.dice.coin();
  const auto options = nn::Conv2dOptions(in, out, kernel).stride(stride).padding(pad).dilation(dilation);
  return step_on(x,
                 say("Conv2d(", in, ", ", out, ", kernel ", kernel, ", stride ", stride, ", padding ", pad,
                     ", dilation ", dilation, ", groups ", groups, bias ? ")" : ", no bias)"),
                 call(net.layer(nn::Conv2d(nn::Conv2dOptions(options).groups(groups).bias(bias)))));
}

/// With a batch norm and relu behind it.
Maybe conv_block(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4) return {};
  const int64_t in = net.value(x).size(1), out = net.dice.between(1, 8);
  auto conv = net.layer(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
  auto norm = net.layer(nn::BatchNorm2d(out));
  norm->running_mean.uniform_(-0.2, 0.2);
  norm->running_var.uniform_(0.5, 1.5);
  return step_on(x, say("relu(BatchNorm2d(Conv2d(", in, ", ", out, ", kernel 3, padding 1)))"),
                 [=](const Tensor& a) mutable { return torch::relu(norm->forward(conv->forward(a))); });
}

Maybe conv1d(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 3) return {};
  const int64_t in = net.value(x).size(1), out = net.dice.between(1, 8), kernel = net.dice.between(1, 3),
                stride = net.dice.between(1, 2), pad = net.dice.between(0, 2);
  if (net.value(x).size(2) + 2 * pad < kernel) return {};
  return step_on(
      x, say("Conv1d(", in, ", ", out, ", kernel ", kernel, ", stride ", stride, ", padding ", pad, ")"),
      call(net.layer(nn::Conv1d(nn::Conv1dOptions(in, out, kernel).stride(stride).padding(pad)))));
}

Maybe conv_transpose2d(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4) return {};
  const int64_t in = net.value(x).size(1), out = net.dice.between(1, 6), kernel = net.dice.between(2, 4),
                stride = net.dice.between(1, 2), pad = net.dice.between(0, 1);
  const auto options = nn::ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(pad);
  if ((std::min(net.value(x).size(2), net.value(x).size(3)) - 1) * stride + kernel - 2 * pad < 1) return {};
  return step_on(x,
                 say("ConvTranspose2d(", in, ", ", out, ", kernel ", kernel, ", stride ", stride,
                     ", padding ", pad, ")"),
                 call(net.layer(nn::ConvTranspose2d(options))));
}

Maybe pool2d(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4 || std::min(net.value(x).size(2), net.value(x).size(3)) < 3) return {};
  const int64_t kernel = net.dice.between(2, 3), stride = net.dice.between(1, 3),
                pad = net.dice.between(0, 1);
  const bool ceil = net.dice.coin(), counted = net.dice.coin();
  if (net.dice.coin()) {
    return step_on(x, say("max_pool2d(", kernel, ", ", stride, ", padding ", pad, ceil ? ", ceil)" : ")"),
                   [=](const Tensor& a) { return at::max_pool2d(a, kernel, stride, pad, 1, ceil); });
  }
  return step_on(x,
                 say("avg_pool2d(", kernel, ", ", stride, ", padding ", pad, ceil ? ", ceil" : "",
                     counted ? ", counts padding)" : ")"),
                 [=](const Tensor& a) { return at::avg_pool2d(a, kernel, stride, pad, ceil, counted); });
}

Maybe adaptive_pool(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4) return {};
  const int64_t h = net.dice.between(1, 3), w = net.dice.between(1, 3);
  return step_on(x, say("adaptive_avg_pool2d(", h, ", ", w, ")"), [=](const Tensor& a) {
    return at::adaptive_avg_pool2d(a, {h, w});
  });
}

Maybe pool1d(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 3 || net.value(x).size(2) < 3) return {};
  const int64_t kernel = net.dice.between(2, 3), stride = net.dice.between(1, 2);
  if (net.dice.coin()) {
    return step_on(x, say("max_pool1d(", kernel, ", ", stride, ")"),
                   [=](const Tensor& a) { return at::max_pool1d(a, kernel, stride); });
  }
  return step_on(x, say("avg_pool1d(", kernel, ", ", stride, ")"),
                 [=](const Tensor& a) { return at::avg_pool1d(a, kernel, stride); });
}

Maybe resize(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 4) return {};
  const std::vector<int64_t> size = {net.dice.between(1, 12), net.dice.between(1, 12)};
  const bool aligned = net.dice.coin();
  if (net.dice.coin()) {
    return step_on(x, say("upsample_nearest2d(", at::IntArrayRef(size), ")"),
                   [=](const Tensor& a) { return at::upsample_nearest2d(a, size); });
  }
  return step_on(x, say("upsample_bilinear2d(", at::IntArrayRef(size), aligned ? ", align_corners)" : ")"),
                 [=](const Tensor& a) { return at::upsample_bilinear2d(a, size, aligned); });
}

Maybe layer_norm(RandomNet& net, size_t x) {
  const int64_t last = net.value(x).size(-1);
  if (net.value(x).dim() < 2 || last < 3) return {};
  return step_on(x, say("LayerNorm(", last, ")"),
                 call(net.layer(nn::LayerNorm(nn::LayerNormOptions({last})))));
}

Maybe group_norm(RandomNet& net, size_t x) {
  if (net.value(x).dim() < 3) return {};
  const int64_t channels = net.value(x).size(1), groups = channels % 2 == 0 ? 2 : 1;
  if (net.value(x).numel() / net.value(x).size(0) / groups < 3) return {};
  return step_on(x, say("GroupNorm(", groups, ", ", channels, ")"),
                 call(net.layer(nn::GroupNorm(nn::GroupNormOptions(groups, channels)))));
}

Maybe instance_norm(RandomNet& net, size_t x) {
  const int64_t rank = net.value(x).dim();
  if (rank < 3 || rank > 4 || net.value(x)[0][0].numel() < 3) return {};
  const int64_t channels = net.value(x).size(1);
  if (rank == 3)
    return step_on(x, say("InstanceNorm1d(", channels, ")"), call(net.layer(nn::InstanceNorm1d(channels))));
  return step_on(x, say("InstanceNorm2d(", channels, ")"), call(net.layer(nn::InstanceNorm2d(channels))));
}

template <typename Norm>
Maybe batch_norm_of(RandomNet& net, size_t x, const char* words) {
  Norm norm = net.layer(Norm(net.value(x).size(1)));
  norm->running_mean.uniform_(-0.2, 0.2);
  norm->running_var.uniform_(0.5, 1.5);
  return step_on(x, say(words, "(", net.value(x).size(1), ")"), call(norm));
}

Maybe batch_norm(RandomNet& net, size_t x) {
  if (net.value(x).dim() == 4) return batch_norm_of<nn::BatchNorm2d>(net, x, "BatchNorm2d");
  if (net.value(x).dim() == 3) return batch_norm_of<nn::BatchNorm1d>(net, x, "BatchNorm1d");
  return {};
}

Maybe product_with_itself(RandomNet& net, size_t x) {
  const int64_t rank = net.value(x).dim();
  if (rank < 3 || rank > 4) return {};
  const double scale = 1 / std::sqrt(static_cast<double>(net.value(x).size(-1)));
  if (rank == 3 && net.dice.coin()) {
    return step_on(x, "einsum(bij, bkj -> bik)", [=](const Tensor& a) {
      return torch::einsum("bij,bkj->bik", {a, a * scale});
    });
  }
  return step_on(x, "a matmul a.transpose(-1, -2)",
                 [=](const Tensor& a) { return (a * scale).matmul(a.transpose(-1, -2)); });
}

Maybe product_of_two(RandomNet& net, size_t x) {
  for (size_t y = net.values(); y-- > 0;) {
    const Tensor &a = net.value(x), &b = net.value(y);
    if (a.dim() != b.dim() || a.dim() < 3 || a.size(-1) != b.size(-2)) continue;
    if (a.dim() > 3 && a.sizes().slice(1, static_cast<size_t>(a.dim()) - 3) !=
                           b.sizes().slice(1, static_cast<size_t>(a.dim()) - 3))
      continue;
    return RandomStep{"a matmul b", {x, y}, [](const std::vector<Tensor>& v) { return v[0].matmul(v[1]); }};
  }
  return {};
}

Maybe product_with_parameter(RandomNet& net, size_t x) {
  const int64_t rank = net.value(x).dim();
  if (rank < 2 || rank > 4) return {};
  if (rank > 2 && net.dice.coin()) {
    const Tensor left = net.parameter({net.dice.between(1, 8), net.value(x).size(-2)});
    return step_on(x, say("parameter ", left.sizes(), " matmul a"),
                   [=](const Tensor& a) { return left.matmul(a); });
  }
  const Tensor right = net.parameter({net.value(x).size(-1), net.dice.between(1, 8)});
  return step_on(x, say("a matmul parameter ", right.sizes()),
                 [=](const Tensor& a) { return a.matmul(right); });
}

Maybe attention(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 3 || net.value(x).size(2) % 2 != 0) return {};
  const int64_t width = net.value(x).size(2), length = net.value(x).size(1);
  auto qkv = net.layer(nn::Linear(width, 3 * width));
  const bool causal = net.dice.coin();
  return step_on(x,
                 say("attention of 2 heads over Linear(", width, ", ", 3 * width, causal ? "), causal" : ")"),
                 [=](const Tensor& a) mutable {
                   const auto parts = qkv->forward(a).chunk(3, -1);
                   const auto heads = [&](const Tensor& v) {
                     return v.view({a.size(0), length, 2, width / 2}).transpose(1, 2);
                   };
                   const Tensor mixed = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                                         heads(parts[2]), {}, 0.0, causal);
                   return mixed.transpose(1, 2).reshape({a.size(0), length, width});
                 });
}

Maybe recurrent(RandomNet& net, size_t x) {
  if (net.value(x).dim() != 3) return {};
  const int64_t in = net.value(x).size(2), hidden = net.dice.between(2, 8);
  const bool both = net.dice.coin();
  if (net.dice.coin()) {
    auto layer = net.layer(nn::LSTM(nn::LSTMOptions(in, hidden).batch_first(true).bidirectional(both)));
    return step_on(x, say("LSTM(", in, ", ", hidden, both ? ", both directions)" : ")"),
                   [=](const Tensor& a) mutable { return std::get<0>(layer->forward(a)); });
  }
  auto layer = net.layer(nn::GRU(nn::GRUOptions(in, hidden).batch_first(true).bidirectional(both)));
  return step_on(x, say("GRU(", in, ", ", hidden, both ? ", both directions)" : ")"),
                 [=](const Tensor& a) mutable { return std::get<0>(layer->forward(a)); });
}

}  // namespace

RandomFamily random_products() {
  static constexpr DrawStep kSteps[] = {product_with_itself, product_of_two, product_with_parameter};
  return {kSteps};
}

RandomFamily random_layers() {
  static constexpr DrawStep kSteps[] = {linear, linear,    linear_with_end, conv2d,
                                        conv1d, attention, recurrent};
  return {kSteps};
}

RandomFamily random_image_layers() {
  static constexpr DrawStep kSteps[] = {conv2d, conv_block, conv_transpose2d, pool2d, adaptive_pool,
                                        pool1d, resize};
  return {kSteps};
}

RandomFamily random_norms() {
  static constexpr DrawStep kSteps[] = {layer_norm, group_norm, instance_norm, batch_norm};
  return {kSteps};
}

}  // namespace ulp::test::recipe
