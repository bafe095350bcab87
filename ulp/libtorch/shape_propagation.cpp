#include "ulp/libtorch/shape_propagation.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unordered_map>

namespace ulp::libtorch {

namespace {

/// Between autograd and the kernels of devices. LibTorch gives it to programs outside of it, and has no
/// kernels for it.
constexpr c10::DispatchKey kShapesKey = c10::DispatchKey::Fake;

using Stack = torch::jit::Stack;

/// Which storages have numbers that follow a product that was left out. They are held weakly, so that no
/// other storage has the address of one that is gone.
class LeftOut {
 public:
  static LeftOut& of_thread() {
    static thread_local LeftOut one;
    return one;
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
    at::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (storages_.contains(storage)) return;
    storages_.emplace(storage, c10::weak_intrusive_ptr<at::StorageImpl>(
                                   c10::intrusive_ptr<at::StorageImpl>::reclaim_copy(storage)));
  }
  bool has(const at::Tensor& tensor) const {
    return !storages_.empty() && tensor.defined() && tensor.has_storage() &&
           storages_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  int guards = 0;
  bool was_read = false;
  void clear() { storages_.clear(); }

 private:
  std::unordered_map<at::StorageImpl*, c10::weak_intrusive_ptr<at::StorageImpl>> storages_;
};

/// Calls `visit` for the tensors of an argument or a result.
template <typename Visit>
void for_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& one : value.toTensorVector()) visit(one);
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) for_tensors(one, visit);
  }
}

/// Whether what the op gives, besides numbers, follows the numbers of its tensors.
bool reads_numbers(const std::string& name) {
  constexpr std::array kReaders = {"aten::_local_scalar_dense",
                                   "aten::equal",
                                   "aten::nonzero",
                                   "aten::masked_select",
                                   "aten::bincount",
                                   "aten::repeat_interleave",
                                   "aten::_unique",
                                   "aten::_unique2",
                                   "aten::unique_dim",
                                   "aten::unique_consecutive",
                                   "aten::is_nonzero",
                                   "aten::unique_dim_consecutive",
                                   "aten::allclose",
                                   "aten::is_set_to"};
  return std::ranges::find(kReaders, name) != kReaders.end();
}

/// Any other op: what it makes of numbers that were left out is left out, too.
void follow(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kShapesKey);
  LeftOut& left_out = LeftOut::of_thread();
  const auto& arguments = op.schema().arguments();
  bool follows = false;
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    for_tensors(stack->at(stack->size() - arguments.size() + i), [&](const at::Tensor& tensor) {
      follows = follows || left_out.has(tensor);
      if (is_written) written.push_back(tensor);
    });
  }
  if (!follows) return op.redispatchBoxed(below, stack);
  left_out.was_read = left_out.was_read || reads_numbers(op.operator_name().name);
  try {
    op.redispatchBoxed(below, stack);
  } catch (...) {
    left_out.was_read = true;
    throw;
  }
  for (const at::Tensor& tensor : written) left_out.add(tensor);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i)
    for_tensors(stack->at(i), [&](const at::Tensor& tensor) { left_out.add(tensor); });
}

bool is_taken(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == c10::kStrided && tensor.is_non_overlapping_and_dense();
}

at::Tensor with_device(const at::Tensor& tensor, c10::Device device) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
}

/// Zeros that take memory where they are written to alone, as the system gives large blocks of zeros.
at::Tensor untouched_zeros(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  constexpr size_t kLarge = size_t{1} << 20;
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, options.dtype().itemsize());
  void* const zeros = bytes < kLarge ? nullptr : std::calloc(bytes, 1);
  if (zeros == nullptr) return at::empty_strided(sizes, strides, options).zero_();
  return at::from_blob(
      zeros, sizes, strides, [](void* memory) { std::free(memory); }, options);
}

/// Products of so few numbers may be sizes, and cost nothing.
constexpr int64_t kFewNumbers = 4096;

/// A product on tensors without memory, which checks its arguments and says what the result is.
void product_of_shapes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
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
  if (few || !plain) return follow(op, keys, stack);
  op.callBoxed(shapes);
  torch::jit::drop(*stack, count);
  const at::Tensor& result = shapes.at(0).toTensor();
  stack->emplace_back(untouched_zeros(result.sizes(), result.strides(), result.options().device(at::kCPU)));
  LeftOut::of_thread().add(stack->back().toTensor());
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
  LeftOut& left_out = LeftOut::of_thread();
  at::Tensor y;
  if (sizes.empty()) {
    y = at::convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
    const bool follows = left_out.has(x) || left_out.has(weight) || (bias && left_out.has(*bias));
    if (follows) left_out.add(y);
  } else {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * sizes[d];
    y = untouched_zeros(sizes, strides, x.options());
    left_out.add(y);
  }
  return y;
}

/// Registered once, and for threads with a guard alone.
void register_kernels() {
  static const auto* const kernels = [] {
    auto* const all = new torch::Library(torch::Library::IMPL, "_", kShapesKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFromBoxedFunction<&follow>());
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

/// Does the work for shapes; whether it has to be done again.
bool needs_numbers(const std::function<void()>& work) {
  const ShapePropagation shapes;
  try {
    work();
  } catch (...) {
    if (!shapes.numbers_were_read()) throw;
  }
  return shapes.numbers_were_read();
}

}  // namespace

ShapePropagation::ShapePropagation() : included_(registered_key()), before_(LeftOut::of_thread().was_read) {
  LeftOut& left_out = LeftOut::of_thread();
  left_out.was_read = false;
  ++left_out.guards;
}

ShapePropagation::~ShapePropagation() {
  LeftOut& left_out = LeftOut::of_thread();
  left_out.was_read = before_ || left_out.was_read;
  if (--left_out.guards > 0) return;
  left_out.was_read = false;
  left_out.clear();
}

bool ShapePropagation::numbers_were_read() const {
  return LeftOut::of_thread().was_read;
}

void with_shapes(const std::function<void()>& work) {
  if (!needs_numbers(work)) return;
  const c10::impl::ExcludeDispatchKeyGuard with_numbers(registered_key());
  work();
}

}  // namespace ulp::libtorch
