#include "ulp/amp/autocast/wide_products.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/amp/autocast/wide_functions.h"
#include "ulp/libtorch/autocast_policies.h"

namespace ulp::amp {

namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

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
  std::vector<Tensor> tensors;
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
  return wide_call(tensors, call);
}

Tensor matmul(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor a = arguments.tensor(0), b = arguments.tensor(1);
  return a.dim() < 2 || b.dim() < 2 ? any_call(op, arguments) : wide_matmul(a, b);
}

Tensor addmm(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor c = arguments.tensor(0), a = arguments.tensor(1), b = arguments.tensor(2);
  const IValue &beta = arguments.named("beta"), &alpha = arguments.named("alpha");
  if (!beta.isScalar() || !alpha.isScalar() || beta.isComplexDouble() || alpha.isComplexDouble())
    return any_call(op, arguments);
  return wide_addmm(c, a, b, beta.toScalar().toDouble(), alpha.toScalar().toDouble());
}

Tensor linear(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor x = arguments.tensor(0), weight = arguments.tensor(1);
  if (x.dim() < 2 || weight.dim() != 2) return any_call(op, arguments);
  return wide_linear(x, weight, arguments.optional_tensor("bias"));
}

std::vector<int64_t> for_each_dim(const std::vector<int64_t>& given, size_t dims) {
  return given.size() == 1 ? std::vector<int64_t>(dims, given[0]) : given;
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
  return wide_convolution(x, weight, arguments.optional_tensor("bias"), how);
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
