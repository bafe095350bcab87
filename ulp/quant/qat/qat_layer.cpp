#include "ulp/quant/qat/qat_layer.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/operators/straight_through.h"
#include "ulp/quant/static/bias_quantization.h"

namespace ulp::quant {
namespace {

// Below this magnitude the factor that the fast way divides by is kept at it: a channel whose gamma is 0 or
// nearly so has a defined gradient, and codes that are not lost to the smallest scale.
constexpr double kSmallestFactor = 0x1p-10;

// One number a channel, as the channels of an activation: dimension 1 of n.
at::Tensor over_channels(const at::Tensor& v, int64_t dimensions) {
  std::vector<int64_t> shape(static_cast<size_t>(dimensions), 1);
  shape[1] = -1;
  return v.view(shape);
}

std::vector<int64_t> all_but_channels(int64_t dimensions) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < dimensions; ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

}  // namespace

LayerCall::LayerCall(const graph::Graph& graph, const graph::Node& layer)
    : weight(graph.attribute_tensor(layer.arg("weight").value)), is_linear(layer.is("aten::linear")) {
  if (!layer.arg("bias").is_none()) bias = graph.attribute_tensor(layer.arg("bias").value);
  if (is_linear) return;
  stride = graph::integers(layer.arg("stride")).value();
  padding = graph::integers(layer.arg("padding")).value();
  dilation = graph::integers(layer.arg("dilation")).value();
  groups = graph::integer(layer.arg("groups")).value();
  if (!layer.op().starts_with("aten::conv_transpose")) return;
  const auto dims = static_cast<size_t>(weight.dim() - 2);
  phases.emplace(weight.detach(), graph::spread(stride, dims), graph::spread(padding, dims),
                 graph::spread(graph::integers(layer.arg("output_padding")).value(), dims),
                 graph::spread(dilation, dims), groups);
}

at::Tensor LayerCall::operator()(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
  const std::optional<at::Tensor> maybe = b.defined() ? std::optional(b) : std::nullopt;
  if (is_linear) return at::linear(x, w, maybe);
  if (phases) {
    const std::vector<int64_t> ones(phases->strides.size(), 1);
    const at::Tensor parts = w.dim() == 3   ? at::conv1d(x, w, maybe, ones, phases->reach, ones, 1)
                             : w.dim() == 5 ? at::conv3d(x, w, maybe, ones, phases->reach, ones, 1)
                                            : at::conv2d(x, w, maybe, ones, phases->reach, ones, 1);
    return phases->joined(parts);
  }
  if (w.dim() == 3) return at::conv1d(x, w, maybe, stride, padding, dilation, groups);
  if (w.dim() == 5) return at::conv3d(x, w, maybe, stride, padding, dilation, groups);
  return at::conv2d(x, w, maybe, stride, padding, dilation, groups);
}

QatLayer::QatLayer(const std::string& label, LayerCall call, std::optional<BatchNormState> norm,
                   const TensorRecipe& weight, const QatOptions& options,
                   std::shared_ptr<const QatState> state, std::shared_ptr<ActivationQuantizer> input)
    : label_(label),
      call_(std::move(call)),
      norm_(std::move(norm)),
      folding_(options.folding),
      state_(std::move(state)),
      input_(std::move(input)) {
  quantizer_ = register_module("weight", std::make_shared<WeightQuantizer>(label + ".weight", weight, options,
                                                                           state_, observed_weight()));
}

at::Tensor QatLayer::scaled_weight(const at::Tensor& factor) const {
  std::vector<int64_t> shape(static_cast<size_t>(call_.weight.dim()), 1);
  shape[0] = -1;
  return call_.computed_weight() * call_.each(factor).view(shape);
}

at::Tensor QatLayer::safe_factor() const {
  const at::Tensor f = norm_->factor();
  const at::Tensor smallest = at::full({}, kSmallestFactor, f.options());
  return at::where(f.abs() < smallest, at::where(f < 0, -smallest, smallest), f);
}

at::Tensor QatLayer::observed_weight() const {
  const at::NoGradGuard no_grad;
  if (!norm_) return call_.computed_weight().detach();
  return scaled_weight(folding_ == BatchNormFolding::fast ? safe_factor() : norm_->factor());
}

at::Tensor QatLayer::folded_weight() const {
  return norm_ ? scaled_weight(norm_->factor()) : call_.computed_weight();
}

at::Tensor QatLayer::folded_bias() const {
  if (!norm_) return call_.each(call_.bias);
  const at::Tensor centered = call_.bias.defined() ? call_.bias - norm_->mean : -norm_->mean;
  const at::Tensor shift = norm_->factor() * centered;
  return call_.each(norm_->beta.defined() ? norm_->beta + shift : shift);
}

QParams QatLayer::weight_qparams() const {
  return quantizer_->qparams(observed_weight());
}

at::Tensor QatLayer::forward(const at::Tensor& x) {
  if (!norm_ || !is_training() || state_->batch_norm_frozen) return infer(x);
  return folding_ == BatchNormFolding::fast ? train_fast(x) : train_exact(x);
}

// The very numbers of the converted graph: the bias is rounded to the steps of the accumulator. In train mode
// a layer without batch norm keeps it as it is, as in PyTorch.
at::Tensor QatLayer::infer(const at::Tensor& x) {
  const at::Tensor weight = folded_weight(), observed = observed_weight();
  at::Tensor bias = folded_bias();
  const bool plain_bias = !norm_ && is_training();
  if (!bias.defined() || plain_bias || !state_->fake_quant_enabled || !input_->ready()) {
    return call_(x, quantizer_->quantize(weight, observed), bias);
  }
  at::Tensor room, rounded;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor input_scale = input_->qparams().scale;
    const at::Tensor scale = quantizer_->qparams(observed).scale;
    room = smallest_weight_scale(bias, input_scale, scale.numel());
    const at::Tensor scales = (input_scale * at::maximum(scale, room)).expand({bias.numel()}).contiguous();
    const std::optional<at::Tensor> codes = bias_codes(bias, scales);
    if (!codes) {
      fail("quant.qat", "expected the bias of '", label_,
           "' to fit into int32 at the scale of its input and weight, got larger values");
    }
    rounded = dequantize(*codes, scales, at::zeros_like(*codes), 0);
  }
  return call_(x, quantizer_->quantize(weight, observed, room), straight_through(bias, rounded));
}

at::Tensor QatLayer::train_fast(const at::Tensor& x) {
  const at::Tensor factor = safe_factor();
  const at::Tensor scaled = scaled_weight(factor);
  const at::Tensor product = call_(x, quantizer_->quantize(scaled, scaled.detach()), {});
  at::Tensor y = product / over_channels(factor, product.dim());
  if (call_.bias.defined()) y = y + over_channels(call_.bias, y.dim());
  return norm_->normalize(y, /*batch_statistics=*/true);
}

at::Tensor QatLayer::train_exact(const at::Tensor& x) {
  const at::Tensor plain = call_(x, call_.computed_weight(), call_.each(call_.bias)).to(at::kFloat);
  const int64_t n = plain.dim();
  {
    const at::NoGradGuard no_grad;  // updates the running statistics; the result is not used
    norm_->normalize(plain, /*batch_statistics=*/true);
  }
  const at::Tensor mean = plain.mean(all_but_channels(n));
  const at::Tensor var = (plain - over_channels(mean, n)).square().mean(all_but_channels(n));
  const at::Tensor deviation = (var + norm_->eps).sqrt(), factor = norm_->factor();
  const at::Tensor scaled = scaled_weight(factor);
  const at::Tensor bias = call_.each(call_.bias.defined() ? factor * call_.bias : at::Tensor());
  const at::Tensor product = call_(x, quantizer_->quantize(scaled, scaled.detach()), bias);
  const at::Tensor y = product * over_channels(norm_->deviation() / deviation, n);
  const at::Tensor normal = norm_->gamma.defined() ? norm_->gamma / deviation : deviation.reciprocal();
  const at::Tensor shift = norm_->beta.defined() ? norm_->beta - mean * normal : -mean * normal;
  return y + over_channels(shift, n);
}

}  // namespace ulp::quant
