#include "ulp/amp/autocast/wide_products.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/amp/autocast/wide_functions.h"
#include "ulp/libtorch/plain_kernels.h"

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
    // A mask: the backward pass reads it again, and the caller may write to it before.
    const bool kept = argument.isTensor() && argument.toTensor().defined() && at::GradMode::is_enabled();
    given.push_back(half ? IValue(Tensor()) : kept ? IValue(argument.toTensor().clone()) : argument);
  }
  auto call = c10::make_intrusive<BoxedCall>(op, std::move(given));
  call->places = std::move(places);
  return wide_call(tensors, call);
}

Tensor matmul(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor a = arguments.tensor(0), b = arguments.tensor(1);
  return a.dim() < 2 || b.dim() < 2 ? any_call(op, arguments) : wide_matmul(a, b);
}

/// Whether both are matrices, or batches of as many. What is not throws as the op itself does.
bool are_matrices(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2;
}
bool are_batches(const Tensor& a, const Tensor& b) {
  return a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0);
}

template <bool (*fit)(const Tensor&, const Tensor&)>
Tensor product(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor a = arguments.tensor(0), b = arguments.tensor(1);
  return fit(a, b) ? wide_matmul(a, b) : any_call(op, arguments);
}

/// addmm and baddbmm.
template <bool (*fit)(const Tensor&, const Tensor&)>
Tensor added_product(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor c = arguments.tensor(0), a = arguments.tensor(1), b = arguments.tensor(2);
  const IValue &beta = arguments.named("beta"), &alpha = arguments.named("alpha");
  if (!fit(a, b) || !beta.isScalar() || !alpha.isScalar() || beta.isComplexDouble() ||
      alpha.isComplexDouble())
    return any_call(op, arguments);
  return wide_addmm(c, a, b, beta.toScalar().toDouble(), alpha.toScalar().toDouble());
}

Tensor linear(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor x = arguments.tensor(0), weight = arguments.tensor(1);
  const std::optional<Tensor> bias = arguments.optional_tensor("bias");
  if (x.dim() < 2 || weight.dim() != 2 || (bias && bias->dim() != 1)) return any_call(op, arguments);
  return wide_linear(x, weight, bias);
}

std::vector<int64_t> for_each_dim(const std::vector<int64_t>& given, size_t dims) {
  return given.size() == 1 ? std::vector<int64_t>(dims, given[0]) : given;
}

/// Zeros for "valid", as many on both sides for "same"; nothing where "same" has more behind than before.
std::optional<std::vector<int64_t>> padding_of(const std::string& word, const Tensor& weight,
                                               const std::vector<int64_t>& dilation) {
  std::vector<int64_t> padding(dilation.size(), 0);
  if (word == "valid") return padding;
  for (size_t d = 0; d < padding.size(); ++d) {
    const int64_t both = dilation[d] * (weight.size(static_cast<int64_t>(d) + 2) - 1);
    if (word != "same" || both % 2 != 0) return std::nullopt;
    padding[d] = both / 2;
  }
  return padding;
}

/// `kDims`: of the images; 0 for any number. What does not fit throws as the op itself does.
template <size_t kDims>
Tensor convolution(const c10::OperatorHandle& op, const Arguments& arguments) {
  const Tensor x = arguments.tensor(0), weight = arguments.tensor(1);
  const auto dims = static_cast<size_t>(std::max<int64_t>(weight.dim() - 2, 0));
  if (dims == 0 || (kDims != 0 && dims != kDims) || x.dim() != weight.dim()) return any_call(op, arguments);
  const std::string& name = op.operator_name().name;
  const auto list = [&](const char* argument) { return for_each_dim(arguments.numbers(argument), dims); };
  auto how = c10::make_intrusive<ConvolutionArguments>();
  how->stride = list("stride");
  how->padding = list("padding");
  how->dilation = list("dilation");
  how->output_padding = list("output_padding");
  if (const IValue& padding = arguments.named("padding"); padding.isString()) {
    const auto numbers = padding_of(padding.toStringRef(), weight, how->dilation);
    const bool strided = std::ranges::any_of(how->stride, [](int64_t stride) { return stride != 1; });
    if (!numbers || (strided && padding.toStringRef() == "same")) return any_call(op, arguments);
    how->padding = *numbers;
  }
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

constexpr WideOp kWideOps[] = {{"aten::conv1d", convolution<1>},
                               {"aten::conv1d.padding", convolution<1>},
                               {"aten::conv2d", convolution<2>},
                               {"aten::conv2d.padding", convolution<2>},
                               {"aten::conv3d", convolution<3>},
                               {"aten::conv3d.padding", convolution<3>},
                               {"aten::_convolution.deprecated", convolution<0>},
                               {"aten::conv_transpose1d", convolution<1>},
                               {"aten::conv_transpose2d.input", convolution<2>},
                               {"aten::conv_transpose3d.input", convolution<3>},
                               {"aten::conv_tbc", any_call},
                               {"aten::linear", linear},
                               {"aten::matmul", matmul},
                               {"aten::mm", product<are_matrices>},
                               {"aten::bmm", product<are_batches>},
                               {"aten::addmm", added_product<are_matrices>},
                               {"aten::baddbmm", added_product<are_batches>},
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

/// True where all tensors are of one half type on the CPU; the mask of attention may be of bool.
bool of_one_half_type(const Arguments& arguments) {
  if (!arguments.at(0).isTensor() || !arguments.tensor(0).defined()) return false;
  const at::ScalarType type = arguments.tensor(0).scalar_type();
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  const IValue& mask = arguments.named("attn_mask");
  for (size_t i = 0; i < arguments.count(); ++i) {
    const IValue& argument = arguments.at(i);
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const Tensor& tensor = argument.toTensor();
    const bool plain = tensor.device().is_cpu() && tensor.layout() == at::kStrided;
    const bool is_mask = &argument == &mask && tensor.scalar_type() == at::kBool;
    if (!plain || (tensor.scalar_type() != type && !is_mask)) return false;
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
