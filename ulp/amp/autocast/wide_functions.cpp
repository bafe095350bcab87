#include "ulp/amp/autocast/wide_functions.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <utility>

namespace ulp::amp {

namespace {

using at::Tensor;
using c10::IValue;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Tensor> wide(const std::optional<Tensor>& half) {
  return half && half->defined() ? std::optional(half->to(at::kFloat)) : std::nullopt;
}

Tensor wide(const Tensor& half) {
  return half.to(at::kFloat);
}

// --- matrices -----------------------------------------------------------------------------------------------

/// What the gradient of the other operand is computed from; nothing where that operand wants none, as
/// LibTorch saves it.
Tensor saved_for(const Tensor& other, const Tensor& operand) {
  return other.requires_grad() ? operand : Tensor();
}

/// The sum over all dimensions that broadcasting added or widened.
Tensor summed_to(const Tensor& wide_gradient, const std::vector<int64_t>& sizes) {
  return at::sum_to(wide_gradient, c10::IntArrayRef(sizes));
}

/// [..., n] as rows.
Tensor rows_of(const Tensor& tensor) {
  return tensor.flatten(0, -2);
}

Tensor multiplied(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 ? at::mm(a, b) : at::matmul(a, b);
}

/// The gradients of the operands of a @ b, matrices and batches of them, by that of the result, which is
/// wide.
Tensor gradient_of_a(const Tensor& wide_gradient, const std::vector<int64_t>& a_sizes, const Tensor& b) {
  return summed_to(multiplied(wide_gradient, wide(b).mT()), a_sizes).to(b.scalar_type());
}
Tensor gradient_of_b(const Tensor& wide_gradient, const Tensor& a, const std::vector<int64_t>& b_sizes) {
  const Tensor wide_a = wide(a);
  // Of one matrix for all batches, a single product of all rows.
  const Tensor sum = b_sizes.size() == 2 ? at::mm(rows_of(wide_a).t(), rows_of(wide_gradient))
                                         : summed_to(at::matmul(wide_a.mT(), wide_gradient), b_sizes);
  return sum.to(a.scalar_type());
}

/// beta * c + alpha * a @ b, where c is broadcast: addmm and baddbmm.
struct WideAddmm : public torch::autograd::Function<WideAddmm> {
  static Tensor forward(AutogradContext* context, const Tensor& c, const Tensor& a, const Tensor& b,
                        double beta, double alpha) {
    context->save_for_backward({saved_for(b, a), saved_for(a, b)});
    context->saved_data["c"] = c.sizes().vec();
    context->saved_data["a"] = a.sizes().vec();
    context->saved_data["b"] = b.sizes().vec();
    context->saved_data["beta"] = beta;
    context->saved_data["alpha"] = alpha;
    const Tensor y = a.dim() == 2 ? at::addmm(wide(c), wide(a), wide(b), beta, alpha)
                                  : at::baddbmm(wide(c), wide(a), wide(b), beta, alpha);
    return y.to(a.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const double beta = context->saved_data["beta"].toDouble(),
                 alpha = context->saved_data["alpha"].toDouble();
    const Tensor gradient = wide(gradients[0]), scaled = alpha == 1 ? gradient : gradient * alpha;
    variable_list results(5);
    if (context->needs_input_grad(0)) {
      const Tensor sum = summed_to(gradient, context->saved_data["c"].toIntVector());
      results[0] = (beta == 1 ? sum : sum * beta).to(gradients[0].scalar_type());
    }
    if (context->needs_input_grad(1))
      results[1] = gradient_of_a(scaled, context->saved_data["a"].toIntVector(), saved[1]);
    if (context->needs_input_grad(2))
      results[2] = gradient_of_b(scaled, saved[0], context->saved_data["b"].toIntVector());
    return results;
  }
};

/// a @ b of matrices and batches of them.
struct WideMatmul : public torch::autograd::Function<WideMatmul> {
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b) {
    context->save_for_backward({saved_for(b, a), saved_for(a, b)});
    context->saved_data["a"] = a.sizes().vec();
    context->saved_data["b"] = b.sizes().vec();
    return at::matmul(wide(a), wide(b)).to(a.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const Tensor gradient = wide(gradients[0]);
    Tensor of_a, of_b;
    if (context->needs_input_grad(0))
      of_a = gradient_of_a(gradient, context->saved_data["a"].toIntVector(), saved[1]);
    if (context->needs_input_grad(1))
      of_b = gradient_of_b(gradient, saved[0], context->saved_data["b"].toIntVector());
    return {of_a, of_b};
  }
};

/// x [..., in] by a weight [out, in] and a bias [out], which may be absent.
struct WideLinear : public torch::autograd::Function<WideLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({saved_for(weight, x), saved_for(x, weight)});
    context->saved_data["x"] = x.sizes().vec();
    context->saved_data["bias"] = bias.has_value();
    return at::linear(wide(x), wide(weight), wide(bias)).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const Tensor rows = rows_of(wide(gradients[0]));
    const auto type = gradients[0].scalar_type();
    Tensor of_x, of_weight, of_bias;
    if (context->needs_input_grad(0))
      of_x = at::mm(rows, wide(saved[1])).view(context->saved_data["x"].toIntVector()).to(type);
    if (context->needs_input_grad(1)) of_weight = at::mm(rows.t(), rows_of(wide(saved[0]))).to(type);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) of_bias = rows.sum(0).to(type);
    return {of_x, of_weight, of_bias};
  }
};

// --- convolutions -------------------------------------------------------------------------------------------

struct WideConvolution : public torch::autograd::Function<WideConvolution> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias,
                        const c10::intrusive_ptr<ConvolutionArguments>& how) {
    context->save_for_backward({x, weight});
    context->saved_data["how"] = IValue::make_capsule(how);
    context->saved_data["bias"] = bias.has_value();
    return at::convolution(wide(x), wide(weight), wide(bias), how->stride, how->padding, how->dilation,
                           how->transposed, how->output_padding, how->groups)
        .to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const auto how =
        c10::static_intrusive_pointer_cast<ConvolutionArguments>(context->saved_data["how"].toCapsule());
    const std::vector<int64_t> biases = {saved[1].size(how->transposed ? 1 : 0) *
                                         (how->transposed ? how->groups : 1)};
    const std::array<bool, 3> needed = {context->needs_input_grad(0), context->needs_input_grad(1),
                                        context->saved_data["bias"].toBool() && context->needs_input_grad(2)};
    auto [of_x, of_weight, of_bias] = at::convolution_backward(
        wide(gradients[0]), wide(saved[0]), wide(saved[1]), c10::IntArrayRef(biases), how->stride,
        how->padding, how->dilation, how->transposed, how->output_padding, how->groups, needed);
    const auto type = saved[0].scalar_type();
    const auto rounded = [&](const Tensor& wide_gradient, bool wanted) {
      return wanted ? wide_gradient.to(type) : Tensor();
    };
    return {rounded(of_x, needed[0]), rounded(of_weight, needed[1]), rounded(of_bias, needed[2]), {}};
  }
};

// --- all others ---------------------------------------------------------------------------------------------

/// The op in fp32. The backward pass computes it once more, to have its gradient.
struct WideCall : public torch::autograd::Function<WideCall> {
  static Tensor forward(AutogradContext* context, at::TensorList tensors,
                        const c10::intrusive_ptr<BoxedCall>& call) {
    context->save_for_backward(tensors.vec());
    context->saved_data["call"] = IValue::make_capsule(call);
    variable_list widened;
    for (const Tensor& tensor : tensors) widened.push_back(wide(tensor));
    return (*call)(widened).to(tensors[0].scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const bool twice = at::GradMode::is_enabled();  // the gradient itself is differentiated
    const at::AutoGradMode recording(true);
    const variable_list saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<BoxedCall>(context->saved_data["call"].toCapsule());
    variable_list widened, sources;
    std::vector<bool> needed;
    for (size_t i = 0; i < saved.size(); ++i) {
      needed.push_back(context->needs_input_grad(i));
      Tensor tensor = wide(twice ? saved[i] : saved[i].detach());
      if (!twice && needed[i]) tensor.requires_grad_();
      if (needed[i]) sources.push_back(tensor);
      widened.push_back(std::move(tensor));
    }
    variable_list results(saved.size() + 1);
    const variable_list found =
        torch::autograd::grad({(*call)(widened)}, sources, {wide(gradients[0])}, std::nullopt, twice);
    for (size_t i = 0, next = 0; i < saved.size(); ++i) {
      if (needed[i]) results[i] = found[next++].to(saved[i].scalar_type());
    }
    return results;
  }
};

}  // namespace

Tensor wide_matmul(const Tensor& a, const Tensor& b) {
  return WideMatmul::apply(a, b);
}

Tensor wide_addmm(const Tensor& c, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return WideAddmm::apply(c, a, b, beta, alpha);
}

Tensor wide_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  return WideLinear::apply(x, weight, bias);
}

Tensor wide_convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                        const c10::intrusive_ptr<ConvolutionArguments>& how) {
  return WideConvolution::apply(x, weight, bias, how);
}

Tensor wide_call(const std::vector<Tensor>& tensors, const c10::intrusive_ptr<BoxedCall>& call) {
  return WideCall::apply(at::TensorList(tensors), call);
}

}  // namespace ulp::amp
