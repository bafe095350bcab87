#include "ulp/amp/int8/int8_linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <mutex>

#include "ulp/amp/int8/int8_tensor.h"

namespace ulp::amp {
namespace {

using at::Tensor;
using kernels::Int8Scales;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kInt8LinearWhere = "amp.int8_linear";

/// A call as its forward and backward see it.
struct Int8Call final : public torch::CustomClassHolder {
  Int8LayerRecipe recipe;
  at::ScalarType result = at::kFloat, input_dtype = at::kFloat, weight_dtype = at::kFloat,
                 bias_dtype = at::kFloat;
  std::vector<int64_t> sizes;  ///< of x
  bool transposed = false;     ///< the weight lies in memory as [in][out], and so will its gradient
  bool needs_input = false, needs_weight = false, needs_bias = false;

  bool blocks() const { return recipe.method == Int8Method::jetfire; }
  bool whole_weight() const { return recipe.method == Int8Method::switchback; }
  bool weight_in_int8() const { return recipe.method != Int8Method::switchback && recipe.grad_weight; }
  Int8Scales by_rows() const { return blocks() ? Int8Scales::blocks : Int8Scales::rows; }
  Int8Scales of_weight() const { return whole_weight() ? Int8Scales::tensor : by_rows(); }
};

void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!x.is_floating_point() || !weight.is_floating_point()) {
    fail(kInt8LinearWhere, "expected floating-point x and weight, got ", x.scalar_type(), " and ",
         weight.scalar_type());
  }
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1)) {
    fail(kInt8LinearWhere, "expected x [..., in] and weight [out, in], got ", x.sizes(), " and ",
         weight.sizes());
  }
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) {
    fail(kInt8LinearWhere, "expected a bias of ", weight.size(0), " numbers, got ", bias.sizes());
  }
}

at::ScalarType result_of(const Tensor& x) {
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : x.scalar_type();
}

Tensor as_rows(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// What the forward pass leaves behind.
struct Saved {
  Tensor y;
  Int8Tensor weight;  ///< switchback, jetfire
  Int8Tensor x;       ///< where dW is in int8: across
  Tensor x_float, weight_float;
};

/// x as the product for dW reads it, and as that for y does.
Int8Tensor codes_of_input(const Int8Call& call, const Tensor& x, Saved& saved) {
  const bool kept = call.needs_weight && call.weight_in_int8();
  if (call.blocks()) {
    const Int8Pair pair = int8_quantize(x, {.scales = Int8Scales::blocks, .across = kept});
    saved.x = pair.across;
    return pair.straight;
  }
  if (kept) {
    saved.x = int8_quantize(x, {.scales = Int8Scales::columns, .straight = false, .across = true}).across;
  }
  return call.recipe.output ? int8_quantize(x, {.scales = Int8Scales::rows}).straight : Int8Tensor{};
}

Saved forward(const Int8Call& call, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Saved saved;
  const Tensor matrix = as_rows(x);
  const Int8Tensor input = codes_of_input(call, matrix, saved);
  if (call.needs_weight && !call.weight_in_int8()) saved.x_float = matrix.to(call.result);
  Int8Tensor codes;
  if (call.recipe.output) codes = int8_quantize(weight, {.scales = call.of_weight()}).straight;
  if (call.needs_input && call.recipe.method == Int8Method::rowwise) saved.weight_float = weight;
  if (call.needs_input && call.recipe.method != Int8Method::rowwise) saved.weight = codes;
  if (call.recipe.output) {
    saved.y = int8_product(input, codes, bias, call.result);
  } else {
    saved.y = at::linear(matrix.to(call.result), weight.to(call.result),
                         bias.defined() ? std::optional(bias.to(call.result)) : std::nullopt);
  }
  std::vector<int64_t> sizes = call.sizes;
  sizes.back() = weight.size(0);
  saved.y = saved.y.view(sizes);
  return saved;
}

/// Bits for rounding one gradient, from the default CPU generator.
std::optional<formats::RandomKey> random_key(const Int8Call& call) {
  if (!call.recipe.stochastic) return std::nullopt;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return formats::RandomKey{at::check_generator<at::CPUGeneratorImpl>(generator)->random64(), 0};
}

/// g along its rows and along its columns, as far as products in int8 read it.
Int8Pair codes_of_gradient(const Int8Call& call, const Tensor& g) {
  const bool straight = call.needs_input && call.recipe.grad_input;
  const bool across = call.needs_weight && call.weight_in_int8();
  const auto key = random_key(call);
  if (call.blocks()) {
    return int8_quantize(g,
                         {.scales = Int8Scales::blocks, .straight = straight, .across = across, .key = key});
  }
  Int8Pair pair;
  if (straight) pair.straight = int8_quantize(g, {.scales = Int8Scales::rows, .key = key}).straight;
  if (across) {
    pair.across =
        int8_quantize(g, {.scales = Int8Scales::columns, .straight = false, .across = true, .key = key})
            .across;
  }
  return pair;
}

/// W as the product for dx reads it: [in][out].
Int8Tensor weight_across(const Saved& saved) {
  if (saved.weight.codes.defined()) return int8_transpose(saved.weight);
  return int8_quantize(saved.weight_float, {.scales = Int8Scales::columns, .straight = false, .across = true})
      .across;
}

Tensor weight_gradient(const Int8Call& call, const Saved& saved, const Tensor& g, const Int8Tensor& codes) {
  if (!call.weight_in_int8()) {
    const Tensor& x = saved.x_float;
    return (call.transposed ? at::mm(x.t(), g).t() : at::mm(g.t(), x)).to(call.weight_dtype);
  }
  return call.transposed ? int8_product(saved.x, codes, {}, call.weight_dtype).t()
                         : int8_product(codes, saved.x, {}, call.weight_dtype);
}

struct Gradients {
  Tensor x, weight, bias;
};

Gradients backward(const Int8Call& call, const Saved& saved, const Tensor& gradient) {
  const Tensor g = as_rows(gradient).contiguous();
  const Int8Pair codes = codes_of_gradient(call, g);
  Gradients out;
  if (call.needs_input) {
    if (call.recipe.grad_input) {
      out.x = int8_product(codes.straight, weight_across(saved), {}, call.input_dtype);
    } else {
      out.x = at::mm(g, saved.weight_float.to(call.result)).to(call.input_dtype);
    }
    out.x = out.x.view(call.sizes);
  }
  if (call.needs_weight) {
    out.weight = weight_gradient(call, saved, g, codes.across);
  }
  if (call.needs_bias) out.bias = g.sum(0, false, at::kFloat).to(call.bias_dtype);
  return out;
}

struct Int8LinearFunction : public torch::autograd::Function<Int8LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const c10::intrusive_ptr<Int8Call>& call) {
    at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    Saved saved = amp::forward(*call, x, weight, bias.value_or(Tensor()));
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({saved.weight.codes, saved.weight.scale, saved.x.codes, saved.x.scale,
                                saved.x_float, saved.weight_float});
    return saved.y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (at::GradMode::is_enabled()) {
      fail(kInt8LinearWhere,
           "expected a backward pass without create_graph; gradients of int8 layers have none");
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const variable_list kept = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Int8Call>(context->saved_data["call"].toCapsule());
    const Saved saved{{}, {kept[0], kept[1]}, {kept[2], kept[3]}, kept[4], kept[5]};
    const Gradients gradients = amp::backward(*call, saved, grads[0]);
    return {gradients.x, gradients.weight, gradients.bias, {}};
  }
};

c10::intrusive_ptr<Int8Call> make_call(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                       c10::string_view method, bool output, bool grad_input,
                                       bool grad_weight, bool stochastic) {
  check(x, weight, bias);
  auto call = c10::make_intrusive<Int8Call>();
  call->recipe = {require_word<Int8Method>(kInt8LinearWhere, "the method",
                                           std::string_view(method.data(), method.size())),
                  output, grad_input, grad_weight, stochastic};
  call->recipe.validate();
  call->result = result_of(x);
  call->input_dtype = x.scalar_type();
  call->weight_dtype = weight.scalar_type();
  call->bias_dtype = bias.defined() ? bias.scalar_type() : at::kFloat;
  call->sizes = x.sizes().vec();
  call->transposed = is_transposed(weight);
  return call;
}

Tensor int8_linear_kernel(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                          c10::string_view method, bool output, bool grad_input, bool grad_weight,
                          bool stochastic) {
  const Tensor b = bias.value_or(Tensor());
  const auto call = make_call(x, weight, b, method, output, grad_input, grad_weight, stochastic);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return forward(*call, x, weight, b).y;
}

Tensor int8_linear_autograd(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                            c10::string_view method, bool output, bool grad_input, bool grad_weight,
                            bool stochastic) {
  const Tensor b = bias.value_or(Tensor());
  const bool records = at::GradMode::is_enabled();
  const auto call = make_call(x, weight, b, method, output, grad_input, grad_weight, stochastic);
  if (x.numel() == 0) return at::linear(x, weight, bias);  // of no samples there is nothing to round
  call->needs_input = records && x.requires_grad();
  call->needs_weight = records && weight.requires_grad();
  call->needs_bias = records && b.defined() && b.requires_grad();
  if (call->needs_input || call->needs_weight || call->needs_bias) {
    return Int8LinearFunction::apply(x, weight, bias, call);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return forward(*call, x, weight, b).y;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "int8_linear(Tensor x, Tensor weight, Tensor? bias, str method, bool output, bool grad_input, "
      "bool grad_weight, bool stochastic) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("int8_linear", int8_linear_kernel);
}
TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("int8_linear", int8_linear_autograd);
}

Tensor int8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Int8LayerRecipe& recipe) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kInt8LinearOp, "").typed<decltype(int8_linear_kernel)>();
  return op.call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, enum_name(recipe.method),
                 recipe.output, recipe.grad_input, recipe.grad_weight, recipe.stochastic);
}

}  // namespace ulp::amp
