#include "ulp/amp/autocast/wide_products.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/libtorch/autocast_policies.h"

namespace ulp::amp {

namespace {

using at::Tensor;
using c10::IValue;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

/// The products are what they are, whatever autocast would make of them.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

std::optional<Tensor> wide(const std::optional<Tensor>& half) {
  return half && half->defined() ? std::optional(half->to(at::kFloat)) : std::nullopt;
}

Tensor wide(const Tensor& half) {
  return half.to(at::kFloat);
}

// --- matrices -----------------------------------------------------------------------------------------------

/// The sum over all dimensions that broadcasting added or widened.
Tensor summed_to(const Tensor& wide_gradient, const std::vector<int64_t>& sizes) {
  return at::sum_to(wide_gradient, c10::IntArrayRef(sizes));
}

Tensor multiplied(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 ? at::mm(a, b) : at::matmul(a, b);
}

/// The gradients of the operands of a @ b, matrices and batches of them, by that of the result, which is wide.
Tensor gradient_of_a(const Tensor& wide_gradient, const Tensor& a, const Tensor& b) {
  return summed_to(multiplied(wide_gradient, wide(b).mT()), a.sizes().vec()).to(a.scalar_type());
}
Tensor gradient_of_b(const Tensor& wide_gradient, const Tensor& a, const Tensor& b) {
  const Tensor wide_a = wide(a);
  // Of one matrix for all batches, a single product of all rows.
  const Tensor sum = b.dim() == 2 ? at::mm(wide_a.reshape({-1, a.size(-1)}).t(),
                                           wide_gradient.reshape({-1, wide_gradient.size(-1)}))
                                  : summed_to(at::matmul(wide_a.mT(), wide_gradient), b.sizes().vec());
  return sum.to(b.scalar_type());
}

/// beta * c + alpha * a @ b, where c is broadcast: addmm and baddbmm.
struct WideAddmm : public torch::autograd::Function<WideAddmm> {
  static Tensor forward(AutogradContext* context, const Tensor& c, const Tensor& a, const Tensor& b,
                        double beta, double alpha) {
    context->save_for_backward({a, b});
    context->saved_data["sizes"] = c.sizes().vec();
    context->saved_data["beta"] = beta;
    context->saved_data["alpha"] = alpha;
    context->saved_data["needed"] =
        std::vector<bool>{c.requires_grad(), a.requires_grad(), b.requires_grad()};
    const Tensor y = a.dim() == 2 ? at::addmm(wide(c), wide(a), wide(b), beta, alpha)
                                  : at::baddbmm(wide(c), wide(a), wide(b), beta, alpha);
    return y.to(a.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const std::vector<bool> needed = context->saved_data["needed"].toBoolList().vec();
    const double beta = context->saved_data["beta"].toDouble(),
                 alpha = context->saved_data["alpha"].toDouble();
    const Tensor gradient = wide(gradients[0]), scaled = alpha == 1 ? gradient : gradient * alpha;
    variable_list results(5);
    if (needed[0]) {
      const Tensor sum = summed_to(gradient, context->saved_data["sizes"].toIntVector());
      results[0] = (beta == 1 ? sum : sum * beta).to(saved[0].scalar_type());
    }
    if (needed[1]) results[1] = gradient_of_a(scaled, saved[0], saved[1]);
    if (needed[2]) results[2] = gradient_of_b(scaled, saved[0], saved[1]);
    return results;
  }
};

/// a @ b of matrices and batches of them.
struct WideMatmul : public torch::autograd::Function<WideMatmul> {
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b) {
    context->save_for_backward({a, b});
    context->saved_data["needed"] = std::vector<bool>{a.requires_grad(), b.requires_grad()};
    return at::matmul(wide(a), wide(b)).to(a.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const std::vector<bool> needed = context->saved_data["needed"].toBoolList().vec();
    const Tensor gradient = wide(gradients[0]);
    return {needed[0] ? gradient_of_a(gradient, saved[0], saved[1]) : Tensor(),
            needed[1] ? gradient_of_b(gradient, saved[0], saved[1]) : Tensor()};
  }
};

/// x [..., in] by a weight [out, in] and a bias [out], which may be absent.
struct WideLinear : public torch::autograd::Function<WideLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["needed"] =
        std::vector<bool>{x.requires_grad(), weight.requires_grad(), bias && bias->requires_grad()};
    return at::linear(wide(x), wide(weight), wide(bias)).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const std::vector<bool> needed = context->saved_data["needed"].toBoolList().vec();
    const Tensor gradient = wide(gradients[0]);
    const Tensor rows = gradient.reshape({-1, gradient.size(-1)});
    const auto type = saved[0].scalar_type();
    Tensor of_x, of_weight, of_bias;
    if (needed[0]) of_x = at::mm(rows, wide(saved[1])).view(saved[0].sizes()).to(type);
    if (needed[1]) of_weight = at::mm(rows.t(), wide(saved[0]).reshape({-1, saved[0].size(-1)})).to(type);
    if (needed[2]) of_bias = rows.sum(0).to(type);
    return {of_x, of_weight, of_bias};
  }
};

// --- convolutions -------------------------------------------------------------------------------------------

struct ConvolutionArguments final : public torch::CustomClassHolder {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

struct WideConvolution : public torch::autograd::Function<WideConvolution> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias,
                        const c10::intrusive_ptr<ConvolutionArguments>& how) {
    context->save_for_backward({x, weight});
    context->saved_data["how"] = IValue::make_capsule(how);
    context->saved_data["needed"] =
        std::vector<bool>{x.requires_grad(), weight.requires_grad(), bias && bias->requires_grad()};
    return at::convolution(wide(x), wide(weight), wide(bias), how->stride, how->padding, how->dilation,
                           how->transposed, how->output_padding, how->groups)
        .to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const variable_list saved = context->get_saved_variables();
    const std::vector<bool> needed = context->saved_data["needed"].toBoolList().vec();
    const auto how =
        c10::static_intrusive_pointer_cast<ConvolutionArguments>(context->saved_data["how"].toCapsule());
    const std::vector<int64_t> biases = {saved[1].size(how->transposed ? 1 : 0) *
                                         (how->transposed ? how->groups : 1)};
    auto [of_x, of_weight, of_bias] =
        at::convolution_backward(wide(gradients[0]), wide(saved[0]), wide(saved[1]), c10::IntArrayRef(biases),
                                 how->stride, how->padding, how->dilation, how->transposed,
                                 how->output_padding, how->groups, {needed[0], needed[1], needed[2]});
    const auto type = saved[0].scalar_type();
    const auto rounded = [&](const Tensor& wide_gradient, bool wanted) {
      return wanted ? wide_gradient.to(type) : Tensor();
    };
    return {rounded(of_x, needed[0]), rounded(of_weight, needed[1]), rounded(of_bias, needed[2]), {}};
  }
};

std::vector<int64_t> for_each_dim(const std::vector<int64_t>& given, size_t dims) {
  return given.size() == 1 ? std::vector<int64_t>(dims, given[0]) : given;
}

// --- all others ---------------------------------------------------------------------------------------------

/// An op with its arguments, without the tensors that gradients go to.
struct BoxedCall final : public torch::CustomClassHolder {
  BoxedCall(const c10::OperatorHandle& called, Stack given) : op(called), stack(std::move(given)) {}
  c10::OperatorHandle op;
  Stack stack;
  std::vector<size_t> places;  ///< of the tensors

  Tensor operator()(const variable_list& tensors) const {
    Stack filled = stack;
    for (size_t i = 0; i < places.size(); ++i) filled[places[i]] = tensors[i];
    op.callBoxed(filled);
    return filled.at(0).toTensor();
  }
};

/// The op in fp32. The backward pass computes it once more, to have its gradient.
struct WideCall : public torch::autograd::Function<WideCall> {
  static Tensor forward(AutogradContext* context, at::TensorList tensors,
                        const c10::intrusive_ptr<BoxedCall>& call) {
    context->save_for_backward(tensors.vec());
    context->saved_data["call"] = IValue::make_capsule(call);
    std::vector<bool> needed;
    variable_list widened;
    for (const Tensor& tensor : tensors) {
      needed.push_back(tensor.requires_grad());
      widened.push_back(wide(tensor));
    }
    context->saved_data["needed"] = needed;
    return (*call)(widened).to(tensors[0].scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast plain;
    const bool twice = at::GradMode::is_enabled();  // the gradient itself is differentiated
    const at::AutoGradMode recording(true);
    const variable_list saved = context->get_saved_variables();
    const std::vector<bool> needed = context->saved_data["needed"].toBoolList().vec();
    const auto call = c10::static_intrusive_pointer_cast<BoxedCall>(context->saved_data["call"].toCapsule());
    variable_list widened, sources;
    for (size_t i = 0; i < saved.size(); ++i) {
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

// --- from the stack -----------------------------------------------------------------------------------------

/// What an op was called with, by the names of its arguments.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const Stack& stack)
      : wanted_(op.schema().arguments()), first_(stack.size() - wanted_.size()), stack_(stack) {}

  size_t count() const { return wanted_.size(); }
  const IValue& at(size_t i) const { return stack_[first_ + i]; }
  c10::ArrayRef<const IValue> all() const { return c10::ArrayRef<const IValue>(&at(0), count()); }
  const IValue& named(std::string_view name) const {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i].name() == name) return at(i);
    }
    return none_;
  }
  Tensor tensor(size_t i) const { return at(i).toTensor(); }
  std::optional<Tensor> optional_tensor(std::string_view name) const {
    const IValue& given = named(name);
    return given.isTensor() && given.toTensor().defined() ? std::optional(given.toTensor()) : std::nullopt;
  }
  std::vector<int64_t> numbers(std::string_view name) const {
    const IValue& given = named(name);
    return given.isIntList() ? given.toIntVector() : std::vector<int64_t>();
  }

 private:
  const std::vector<c10::Argument>& wanted_;
  size_t first_;
  const Stack& stack_;
  IValue none_;
};

Tensor any_call(const c10::OperatorHandle& op, const Arguments& arguments) {
  Stack given;
  variable_list tensors;
  std::vector<size_t> places;
  const at::ScalarType type = arguments.tensor(0).scalar_type();
  for (size_t i = 0; i < arguments.count(); ++i) {
    const IValue& argument = arguments.at(i);
    const bool half =
        argument.isTensor() && argument.toTensor().defined() && argument.toTensor().scalar_type() == type;
    if (half) {
      places.push_back(i);
      tensors.push_back(argument.toTensor());
    }
    given.push_back(half ? IValue(Tensor()) : argument);
  }
  auto call = c10::make_intrusive<BoxedCall>(op, std::move(given));
  call->places = std::move(places);
  return WideCall::apply(at::TensorList(tensors), call);
}

Tensor matmul(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor a = arguments.tensor(0), b = arguments.tensor(1);
  return a.dim() < 2 || b.dim() < 2 ? any_call(op, arguments) : WideMatmul::apply(a, b);
}

Tensor addmm(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor c = arguments.tensor(0), a = arguments.tensor(1), b = arguments.tensor(2);
  const IValue &beta = arguments.named("beta"), &alpha = arguments.named("alpha");
  if (!beta.isScalar() || !alpha.isScalar() || beta.isComplexDouble() || alpha.isComplexDouble())
    return any_call(op, arguments);
  return WideAddmm::apply(c, a, b, beta.toScalar().toDouble(), alpha.toScalar().toDouble());
}

Tensor linear(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor x = arguments.tensor(0), weight = arguments.tensor(1);
  if (x.dim() < 2 || weight.dim() != 2) return any_call(op, arguments);
  return WideLinear::apply(x, weight, arguments.optional_tensor("bias"));
}

Tensor convolution(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor x = arguments.tensor(0), weight = arguments.tensor(1);
  const std::string& name = op.operator_name().name;
  const bool padding_by_word = arguments.named("padding").isString();
  if (padding_by_word || x.dim() != weight.dim() || weight.dim() < 3) return any_call(op, arguments);
  const auto dims = static_cast<size_t>(weight.dim() - 2);
  const auto list = [&](const char* argument) { return for_each_dim(arguments.numbers(argument), dims); };
  auto how = c10::make_intrusive<ConvolutionArguments>();
  how->stride = list("stride");
  how->padding = list("padding");
  how->dilation = list("dilation");
  how->output_padding = list("output_padding");
  how->transposed = name.find("transpose") != std::string::npos ||
                    (arguments.named("transposed").isBool() && arguments.named("transposed").toBool());
  how->groups = arguments.named("groups").toInt();
  if (how->output_padding.empty()) how->output_padding.assign(dims, 0);
  return WideConvolution::apply(x, weight, arguments.optional_tensor("bias"), how);
}

struct WideOp {
  const char* name;
  Tensor (*compute)(const c10::OperatorHandle& op, const Arguments& arguments);
};

constexpr WideOp kWideOps[] = {{"aten::conv1d", convolution},
                               {"aten::conv1d.padding", convolution},
                               {"aten::conv2d", convolution},
                               {"aten::conv2d.padding", convolution},
                               {"aten::conv3d", convolution},
                               {"aten::conv3d.padding", convolution},
                               {"aten::_convolution.deprecated", convolution},
                               {"aten::conv_transpose1d", convolution},
                               {"aten::conv_transpose2d.input", convolution},
                               {"aten::conv_transpose3d.input", convolution},
                               {"aten::conv_tbc", any_call},
                               {"aten::linear", linear},
                               {"aten::matmul", matmul},
                               {"aten::mm", matmul},
                               {"aten::bmm", matmul},
                               {"aten::addmm", addmm},
                               {"aten::baddbmm", addmm},
                               {"aten::addbmm", any_call},
                               {"aten::linalg_vecdot", any_call},
                               {"aten::scaled_dot_product_attention", any_call}};

const WideOp* find_op(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  const auto found = std::ranges::find(kWideOps, full, &WideOp::name);
  return found == std::end(kWideOps) ? nullptr : found;
}

/// Dropout, which would draw other numbers where a call is computed again.
bool draws(const Arguments& arguments) {
  return arguments.named("dropout_p").isDouble() && arguments.named("dropout_p").toDouble() > 0;
}

/// True where all tensors are of one half type on the CPU, but for masks and numbers.
bool of_one_half_type(const Arguments& arguments) {
  if (!arguments.at(0).isTensor() || !arguments.tensor(0).defined()) return false;
  const at::ScalarType type = arguments.tensor(0).scalar_type();
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  for (size_t i = 0; i < arguments.count(); ++i) {
    const IValue& argument = arguments.at(i);
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const Tensor& tensor = argument.toTensor();
    const bool plain = tensor.device().is_cpu() && tensor.layout() == at::kStrided;
    if (!plain || (tensor.is_floating_point() && tensor.scalar_type() != type)) return false;
  }
  return true;
}

}  // namespace

bool computes_wide(c10::ScalarType dtype) {
  const at::DisableRecordFunctionGuard unseen;
  const auto lacks = [](const char* question) {
    const auto op = c10::Dispatcher::singleton().findSchema({question, ""});
    return op && !op->typed<bool()>().call();
  };
  static const bool bf16 = lacks("mkldnn::_is_mkldnn_bf16_supported"),
                    fp16 = lacks("mkldnn::_is_mkldnn_fp16_supported");
  return dtype == at::kBFloat16 ? bf16 : dtype == at::kHalf && fp16;
}

std::span<const char* const> wide_products() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> found;
    for (const WideOp& op : kWideOps) found.push_back(op.name);
    return found;
  }();
  return names;
}

bool wide_product(const c10::OperatorHandle& op, Stack& stack) {
  const WideOp* known = find_op(op);
  if (known == nullptr || libtorch::PlainKernels::wanted()) return false;
  const Arguments arguments(op, stack);
  if (!of_one_half_type(arguments) || draws(arguments)) return false;
  const NoAutocast plain;
  at::RecordFunction seen(at::RecordScope::FUNCTION);
  if (seen.isActive()) seen.before(std::cref(op.schema()), arguments.all());
  Tensor result;
  {
    const at::DisableRecordFunctionGuard unseen;
    result = known->compute(op, arguments);
  }
  if (seen.isActive() && seen.needsOutputs()) seen.setOutputs(std::vector<IValue>{result});
  torch::jit::drop(stack, arguments.count());
  torch::jit::push(stack, result);
  return true;
}

}  // namespace ulp::amp
