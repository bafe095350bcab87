// ulp::fp8_convolution and its gradient.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_call.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using CallPtr = c10::intrusive_ptr<Fp8Call>;

constexpr const char* kFp8ConvolutionWhere = "amp.fp8_convolution";

Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape) {
  const std::vector<int64_t> none(shape.stride.size(), 0);
  return at::convolution(x, weight, given(bias), shape.stride, shape.padding, shape.dilation,
                         /*transposed=*/false, none, shape.groups);
}

/// [1, out, 1, ...]
Tensor over_channels(const Tensor& bias, int64_t dims) {
  std::vector<int64_t> sizes(static_cast<size_t>(dims), 1);
  sizes[1] = -1;
  return bias.view(sizes);
}

/// With one scale a tensor.
struct Fp8ConvolutionFunction : public torch::autograd::Function<Fp8ConvolutionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const CallPtr& call) {
    const BelowAutocast below;
    const Fp8Tensor input = call->quantize(x, Fp8Role::input);
    const Fp8Tensor kept = call->quantize_weight(weight, /*matrix=*/false).forward;
    Tensor y = convolve(input.values(), kept.values(), {}, call->shape);
    y.mul_(input.scale_inv * kept.scale_inv);
    if (bias) y.add_(over_channels(*bias, y.dim()));
    save_operands(*context, call, input, kept);
    return y.to(call->result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const BelowAutocast below;
    const CallPtr call = call_of(*context);
    const SavedOperands saved = saved_operands(*context, *call);
    Tensor of_x, of_weight, of_bias;
    if (call->trains()) {
      const Fp8Tensor gradient = call->quantize(grads[0], Fp8Role::gradient);
      const ConvolutionShape& shape = call->shape;
      const std::vector<int64_t> none(shape.stride.size(), 0);
      std::tie(of_x, of_weight, std::ignore) =
          at::convolution_backward(gradient.values(), saved.x.values(), saved.weight.values(), std::nullopt,
                                   shape.stride, shape.padding, shape.dilation, /*transposed=*/false, none,
                                   shape.groups, {call->needs_input, call->needs_weight, false});
      if (of_x.defined()) of_x = of_x.mul_(gradient.scale_inv * saved.weight.scale_inv).to(call->input_dtype);
      if (of_weight.defined())
        of_weight = of_weight.mul_(gradient.scale_inv * saved.x.scale_inv).to(call->weight_dtype);
    }
    if (call->needs_bias) {
      const Tensor by_channel = grads[0].transpose(0, 1).flatten(1);
      of_bias = by_channel.sum(1, /*keepdim=*/false, at::kFloat).to(call->bias_dtype);
    }
    return {of_x, of_weight, of_bias, {}};
  }
};

int64_t places(int64_t size, int64_t window, const ConvolutionShape& shape, size_t d) {
  return (size + 2 * shape.padding[d] - shape.dilation[d] * (window - 1) - 1) / shape.stride[d] + 1;
}

/// As a product over patches, whose scales lie along channels and window.
Tensor over_patches(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape,
                    const Fp8LayerRecipe& recipe, const Fp8State& state, const std::string& name) {
  if (x.dim() == 3) {
    const ConvolutionShape flat{
        {1, shape.stride[0]}, {0, shape.padding[0]}, {1, shape.dilation[0]}, shape.groups};
    return over_patches(x.unsqueeze(2), weight.unsqueeze(2), bias, flat, recipe, state, name).squeeze(2);
  }
  const at::IntArrayRef window = weight.sizes().slice(2);
  const Tensor patches = at::im2col(x, window, shape.dilation, shape.padding, shape.stride);
  const Tensor y = fp8_linear(patches.transpose(1, 2), weight.flatten(1), bias, recipe, state, name);
  return y.transpose(1, 2).reshape({x.size(0), weight.size(0), places(x.size(2), window[0], shape, 0),
                                    places(x.size(3), window[1], shape, 1)});
}

void check_shape(const Tensor& x, const Tensor& weight, const ConvolutionShape& shape) {
  const auto dims = static_cast<size_t>(std::max<int64_t>(weight.dim() - 2, 0));
  const bool fits = (dims == 1 || dims == 2) && x.dim() == weight.dim() && shape.stride.size() == dims &&
                    shape.padding.size() == dims && shape.dilation.size() == dims && shape.groups > 0 &&
                    x.size(1) == weight.size(1) * shape.groups;
  if (!fits) {
    fail(kFp8ConvolutionWhere,
         "expected x [n, in, ...], a weight [out, in / groups, ...] and as many strides, paddings and "
         "dilations as the window has sizes (1 or 2), got ",
         x.sizes(), ", ", weight.sizes(), " and ", at::IntArrayRef(shape.stride));
  }
}

Tensor fp8_convolution_op(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                          at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                          int64_t groups, const std::optional<Tensor>& scale,
                          const std::optional<Tensor>& amax_history, c10::string_view recipe,
                          c10::string_view name) {
  const Tensor given_bias = bias.value_or(Tensor());
  const ConvolutionShape shape{stride.vec(), padding.vec(), dilation.vec(), groups};
  if (!Fp8Setting::current().enabled) return convolve(x, weight, given_bias, shape);
  const CallPtr call = fp8_call(x, weight, given_bias, scale, amax_history, recipe, name);
  call->shape = shape;
  check_shape(x, weight, shape);
  if (call->whole()) return Fp8ConvolutionFunction::apply(x, weight, given(given_bias), call);
  const std::string obstacle = fp8_convolution_obstacle(call->recipe, groups);
  if (!obstacle.empty()) fail(kFp8ConvolutionWhere, "expected another convolution or recipe: ", obstacle);
  return over_patches(x, weight, given_bias, shape, call->recipe, call->state, call->name);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "fp8_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
      "int groups, Tensor? scale, Tensor(a!)? amax_history, str recipe, str name) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("fp8_convolution", fp8_convolution_op);
}

Tensor fp8_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const ConvolutionShape& shape, const Fp8LayerRecipe& recipe, const Fp8State& state,
                       const std::string& name) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(kFp8ConvolutionOp, "")
                             .typed<decltype(fp8_convolution_op)>();
  return op.call(x, weight, given(bias), shape.stride, shape.padding, shape.dilation, shape.groups,
                 given(state.scale), given(state.amax_history), recipe.text(), name);
}

std::string fp8_convolution_obstacle(const Fp8LayerRecipe& recipe, int64_t groups) {
  const bool whole = recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::current;
  if (whole || groups == 1) return "";
  return std::string("a convolution in ") + std::to_string(groups) + " groups has no form with scales of " +
         enum_name(recipe.scaling);
}

}  // namespace ulp::amp
