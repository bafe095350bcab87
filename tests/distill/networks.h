// Networks that the tests of distillation share: images with blocks, attention in several forms.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "error_of.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distill::tests {

using Captured = std::shared_ptr<graph::GraphModule>;

/// One thread: bits do not depend on how work is split, and small tensors are quicker so.
inline const bool one_thread = (at::set_num_threads(1), true);

/// Equal in shape, type and every bit.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && torch::equal(a, b);
}

/// relu(norm(conv(x))).
struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t from, int64_t to, int64_t stride)
      : conv(register_module(
            "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).stride(stride)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(to))) {}
  at::Tensor forward(const at::Tensor& x) { return torch::relu(norm(conv(x))); }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
};
TORCH_MODULE(Block);

/// (N, 1, 8, 8) -> (N, classes): "layer1" of (N, width, 8, 8), "layer2" of (N, 2 width, 4, 4), dropout, "head".
struct ConvNetImpl : torch::nn::Module {
  explicit ConvNetImpl(int64_t width, int64_t classes = 4)
      : layer1(register_module("layer1", Block(1, width, 1))),
        layer2(register_module("layer2", Block(width, 2 * width, 2))),
        dropout(register_module("dropout", torch::nn::Dropout(0.25))),
        head(register_module("head", torch::nn::Linear(2 * width, classes))) {}
  at::Tensor forward(const at::Tensor& x) { return head(dropout(layer2(layer1(x)).mean({2, 3}))); }
  Block layer1, layer2;
  torch::nn::Dropout dropout;
  torch::nn::Linear head;
};
TORCH_MODULE(ConvNet);

inline Captured conv_net(int64_t width, uint64_t seed, int64_t classes = 4) {
  torch::manual_seed(seed);
  ConvNet model(width, classes);
  return capture(model, {torch::randn({3, 1, 8, 8})});
}

/// Images of 8x8 with classes below 4, numbered from `first` on.
inline Batch image_batch(int64_t count, uint64_t seed, int64_t first = 0) {
  auto generator = at::detail::createCPUGenerator(seed);
  return {.inputs = {at::randn({count, 1, 8, 8}, generator, at::kFloat)},
          .targets = at::randint(0, 4, {count}, generator, at::kLong),
          .samples = at::arange(first, first + count)};
}

/// How an attention is written.
enum class Attention { fused, causal, bool_mask, float_mask, scaled, written, written_masked, batched };

/// Self-attention over (N, 5, 8) in two heads.
struct SelfAttentionImpl : torch::nn::Module {
  explicit SelfAttentionImpl(Attention form)
      : form(form),
        query(register_module("query", torch::nn::Linear(8, 8))),
        key(register_module("key", torch::nn::Linear(8, 8))),
        value(register_module("value", torch::nn::Linear(8, 8))),
        mask(register_buffer("mask", torch::ones({5, 5}).tril().fill_diagonal_(1))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [](const at::Tensor& y) {
      return y.view({y.size(0), y.size(1), 2, 4}).transpose(1, 2);
    };
    return mixed(heads(query(x)), heads(key(x)), heads(value(x))).transpose(1, 2).flatten(2);
  }

  at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    switch (form) {
      case Attention::fused:
        return at::scaled_dot_product_attention(q, k, v);
      case Attention::causal:
        return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
      case Attention::bool_mask:
        return at::scaled_dot_product_attention(q, k, v, mask.to(torch::kBool));
      case Attention::float_mask:
        return at::scaled_dot_product_attention(q, k, v, mask);
      case Attention::scaled:
        return at::scaled_dot_product_attention(q, k, v, {}, 0.0, false, /*scale=*/0.25);
      case Attention::batched: {
        const auto flat = [](const at::Tensor& y) { return y.flatten(0, 1); };
        const at::Tensor scores = at::bmm(flat(q), flat(k).transpose(1, 2)) / 2;
        return at::bmm(scores.softmax(-1), flat(v)).view_as(q);
      }
      default:
        break;
    }
    at::Tensor scores = q.matmul(k.transpose(-1, -2)) / 2;
    if (form == Attention::written_masked) scores = scores.masked_fill(mask == 0, -1e4);
    return at::dropout(scores.softmax(-1), 0.5, is_training()).matmul(v);
  }

  Attention form;
  torch::nn::Linear query, key, value;
  at::Tensor mask;
};
TORCH_MODULE(SelfAttention);

/// (N, 5, 8) -> (N, 3): "layers.0", "layers.1" of attention and a linear layer "out", each added to what came before; "head".
struct TransformerImpl : torch::nn::Module {
  explicit TransformerImpl(Attention form) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = std::to_string(i);
      auto layer = layers->register_module(name, std::make_shared<torch::nn::Module>());
      attentions.push_back(layer->register_module("attention", SelfAttention(form)));
      outs.push_back(layer->register_module("out", torch::nn::Linear(8, 8)));
    }
    register_module("layers", layers);
    head = register_module("head", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < outs.size(); ++i) x = x + outs[i](attentions[i](x));
    return head(x.mean(1));
  }
  std::shared_ptr<torch::nn::Module> layers = std::make_shared<torch::nn::Module>();
  std::vector<SelfAttention> attentions;
  std::vector<torch::nn::Linear> outs;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Transformer);

inline at::Tensor tokens(int64_t count = 3, uint64_t seed = 3) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn({count, 5, 8}, generator, at::kFloat);
}

}  // namespace ulp::distill::tests
