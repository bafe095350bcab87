#include "ulp/lower/binary_affine.h"

#include <torch/types.h>

#include <optional>

#include "ulp/graph/passes/pattern.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

class AffineFolder {
 public:
  AffineFolder(const Graph& graph, Value* sums, int64_t dim)
      : graph_(graph),
        result_(sums),
        dim_(dim),
        rank_(static_cast<int64_t>(sums->meta->sizes.size())),
        channels_(sums->meta->sizes[static_cast<size_t>(dim)].offset),
        scale_(at::ones({channels_}, at::kDouble)) {}

  BinaryAffine run() {
    for (;;) {
      Node* next = graph::only_reader(graph_, result_);
      if (next == nullptr || !take(*next)) break;
      result_ = next->output();
    }
    return {.scale = scale_.to(at::kFloat).contiguous(),
            .bias = bias_.defined() ? bias_.to(at::kFloat).contiguous() : at::Tensor(),
            .result = result_,
            .folded = folded_};
  }

 private:
  bool take(const Node& node) {
    if (node.target() == "aten::mul.Tensor") return take_product(node);
    if (node.target() == "aten::add.Tensor" && graph::number(node.arg("alpha")) == 1.0) return take_sum(node);
    return node.is("aten::batch_norm") && dim_ == 1 && take_norm(node);
  }

  /// The constant that meets the value: [O], or [O, h, w] of an image.
  std::optional<at::Tensor> constant(const Node& node, bool pixels) const {
    if (!node.output()->meta || node.output()->meta->sizes != result_->meta->sizes) return std::nullopt;
    const Argument& other =
        node.args[0].is_value() && node.args[0].value == result_ ? node.args[1] : node.args[0];
    if (!other.is_value()) return std::nullopt;
    at::Tensor tensor = graph_.attribute_tensor(other.value);
    if (!tensor.defined() || !tensor.is_floating_point()) return std::nullopt;
    while (tensor.dim() < rank_) tensor = tensor.unsqueeze(0);
    if (tensor.size(0) != 1) return std::nullopt;
    bool of_pixels = false;
    for (int64_t d = 1; d < rank_; ++d) of_pixels = of_pixels || (d != dim_ && tensor.size(d) != 1);
    if (!of_pixels) return tensor.to(at::kDouble).reshape({-1}).expand({channels_});
    if (!pixels || rank_ != 4) return std::nullopt;
    const auto& sizes = result_->meta->sizes;
    return tensor.to(at::kDouble).squeeze(0).expand({channels_, sizes[2].offset, sizes[3].offset});
  }

  at::Tensor shaped(const at::Tensor& of_channels) const {
    return scale_.dim() == 1 ? of_channels : of_channels.view({-1, 1, 1});
  }

  bool take_product(const Node& node) {
    const std::optional<at::Tensor> factor = constant(node, /*pixels=*/!bias_.defined());
    if (!factor) return false;
    if (factor->dim() == 3 && scale_.dim() == 1) scale_ = scale_.view({-1, 1, 1});
    scale_ = scale_ * (factor->dim() < scale_.dim() ? shaped(*factor) : *factor);
    if (bias_.defined()) bias_ = bias_ * *factor;
    folded_ += products_++ > 0 || bias_.defined();
    return true;
  }

  bool take_sum(const Node& node) {
    const std::optional<at::Tensor> addend = constant(node, /*pixels=*/false);
    if (!addend) return false;
    folded_ += bias_.defined();
    bias_ = bias_.defined() ? bias_ + *addend : *addend;
    return true;
  }

  bool take_norm(const Node& node) {
    const auto stored = [&](const char* name) {
      const Argument& arg = node.arg(name);
      return arg.is_value() ? graph_.attribute_tensor(arg.value) : at::Tensor();
    };
    const Argument& training = node.arg("training");
    const at::Tensor mean = stored("running_mean"), var = stored("running_var");
    if (training.kind != Argument::Kind::literal || training.literal.toBool() || !mean.defined() ||
        !var.defined())
      return false;
    const at::Tensor gamma = stored("weight"), beta = stored("bias");
    at::Tensor factor = 1 / (var.to(at::kDouble) + node.arg("eps").literal.toDouble()).sqrt();
    if (gamma.defined()) factor = factor * gamma.to(at::kDouble);
    at::Tensor shift = (bias_.defined() ? bias_ - mean.to(at::kDouble) : -mean.to(at::kDouble)) * factor;
    if (beta.defined()) shift = shift + beta.to(at::kDouble);
    scale_ = scale_ * shaped(factor);
    bias_ = shift;
    ++folded_;
    return true;
  }

  const Graph& graph_;
  Value* result_;
  int64_t dim_, rank_, channels_;
  at::Tensor scale_, bias_;  // double
  int products_ = 0, folded_ = 0;
};

}  // namespace

BinaryAffine fold_affine(const Graph& graph, Value* sums, int64_t dim) {
  const at::NoGradGuard no_grad;
  return AffineFolder(graph, sums, dim).run();
}

}  // namespace ulp::lowering
