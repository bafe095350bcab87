#include "ulp/libtorch/shape_propagation.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

namespace ulp::libtorch {

namespace {

/// Between autograd and the kernels of devices. LibTorch gives it to programs outside of it, and has no kernels for it.
constexpr c10::DispatchKey kShapesKey = c10::DispatchKey::Fake;

using Stack = torch::jit::Stack;

bool is_taken(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == c10::kStrided && tensor.is_non_overlapping_and_dense();
}

at::Tensor with_device(const at::Tensor& tensor, c10::Device device) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
}

/// Products of so few numbers may be sizes, and cost nothing.
constexpr int64_t kFewNumbers = 4096;

/// A product on tensors without memory, which checks its arguments and says what the result is.
void product_of_shapes(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard itself(kShapesKey);
  const size_t count = op.schema().arguments().size();
  Stack shapes(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  bool few = true, plain = true;
  std::optional<at::ScalarType> type;
  for (c10::IValue& argument : shapes) {
    if (!argument.isTensor()) continue;
    const at::Tensor& tensor = argument.toTensor();
    plain = plain && tensor.is_cpu() && tensor.layout() == c10::kStrided &&
            tensor.scalar_type() == type.value_or(tensor.scalar_type());
    type = tensor.scalar_type();
    few = few && tensor.numel() <= kFewNumbers;
    if (plain) argument = with_device(tensor, at::kMeta);
  }
  if (few || !plain) return op.callBoxed(stack);
  op.callBoxed(shapes);
  torch::jit::drop(*stack, count);
  stack->emplace_back(with_device(shapes.at(0).toTensor(), at::kCPU).zero_());
}

/// One number stands for all dimensions.
std::vector<int64_t> for_each(at::IntArrayRef given, size_t dims) {
  return given.size() == 1 ? std::vector<int64_t>(dims, given[0]) : given.vec();
}

/// Sizes of a convolution whose arguments fit; empty where LibTorch has to say what does not.
std::vector<int64_t> convolved_sizes(const at::Tensor& x, const at::Tensor& weight,
                                     const std::optional<at::Tensor>& bias, at::IntArrayRef strides,
                                     at::IntArrayRef paddings, at::IntArrayRef dilations, bool transposed,
                                     at::IntArrayRef output_paddings, int64_t groups) {
  const auto dims = static_cast<size_t>(std::max<int64_t>(x.dim() - 2, 0));
  const std::vector<int64_t> stride = for_each(strides, dims), padding = for_each(paddings, dims),
                             dilation = for_each(dilations, dims),
                             output_padding = for_each(output_paddings, dims);
  const auto positive = [](int64_t one) { return one > 0; };
  const bool complete = dims > 0 && weight.dim() == x.dim() && stride.size() == dims &&
                        padding.size() == dims && dilation.size() == dims && output_padding.size() == dims &&
                        groups > 0 && std::ranges::all_of(stride, positive) &&
                        std::ranges::all_of(dilation, positive) &&
                        std::ranges::none_of(padding, [](int64_t one) { return one < 0; }) &&
                        weight.size(0) % groups == 0 && x.scalar_type() == weight.scalar_type();
  if (!complete) return {};
  const int64_t channels = transposed ? weight.size(0) : weight.size(1) * groups;
  const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
  const bool biased = bias && bias->defined();
  if (x.size(1) != channels || (biased && (bias->dim() != 1 || bias->size(0) != outputs))) return {};
  for (size_t d = 0; d < dims; ++d) {
    const auto at = static_cast<int64_t>(d) + 2;
    if (!transposed && x.size(at) + 2 * padding[d] < dilation[d] * (weight.size(at) - 1) + 1) return {};
    if (transposed && output_padding[d] >= std::max(stride[d], dilation[d])) return {};
  }
  std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(x.sizes(), weight.sizes(), padding, output_padding, stride,
                                               dilation, groups)
                 : at::native::conv_output_size(x.sizes(), weight.sizes(), padding, stride, dilation);
  return std::ranges::all_of(sizes, positive) ? sizes : std::vector<int64_t>();
}

at::Tensor convolution_of_shapes(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                 at::IntArrayRef output_padding, int64_t groups) {
  const c10::impl::ExcludeDispatchKeyGuard itself(kShapesKey);
  // Those of channels-last tensors and of others have layouts of their own.
  const bool plain = is_taken(x) && is_taken(weight) && x.is_contiguous() && weight.is_contiguous() &&
                     x.suggest_memory_format() == at::MemoryFormat::Contiguous &&
                     weight.suggest_memory_format() == at::MemoryFormat::Contiguous;
  std::vector<int64_t> sizes;
  if (plain)
    sizes = convolved_sizes(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  if (sizes.empty())
    return at::convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  return at::zeros(sizes, x.options());
}

/// Registered once, and for threads with a guard alone.
void register_kernels() {
  static const auto* const kernels = [] {
    auto* const all = new torch::Library(torch::Library::IMPL, "_", kShapesKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFallthrough());
    auto* const own = new torch::Library(torch::Library::IMPL, "aten", kShapesKey, __FILE__, __LINE__);
    for (const char* product : {"mm", "addmm", "bmm", "baddbmm"})
      own->impl(product, torch::CppFunction::makeFromBoxedFunction<&product_of_shapes>());
    own->impl("convolution", TORCH_FN(convolution_of_shapes));
    return own;
  }();
  (void)kernels;
}

/// Before the guard: the key has to have its kernels.
c10::DispatchKey registered_key() {
  register_kernels();
  return kShapesKey;
}

}  // namespace

ShapePropagation::ShapePropagation() : included_(registered_key()) {}

}  // namespace ulp::libtorch
