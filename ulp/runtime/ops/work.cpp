#include "ulp/runtime/ops/work.h"

#include <algorithm>

namespace ulp::runtime {
namespace {

double bytes_of(const TensorInfo& tensor, int64_t batch) {
  return static_cast<double>(byte_count(tensor, batch));
}

double elements_of(const TensorInfo& tensor, int64_t batch) {
  return static_cast<double>(element_count(tensor, batch));
}

/// Share of an axis that windows touch: less than all where they are further apart than they reach.
double touched(int64_t kernel, int64_t stride) {
  return std::min(1.0, static_cast<double>(kernel) / static_cast<double>(stride));
}

}  // namespace

StepWork elementwise_work(const StepView& view, int64_t batch, double per_element) {
  // Bytes are compared and added as such; bf16 becomes f32 first.
  const bool bytes = math_of(view.input().type) == kernels::MathType::int8;
  StepWork work{.math = bytes ? kernels::MathType::int8 : kernels::MathType::f32,
                .operations = per_element * elements_of(view.output(), batch),
                .tensor_bytes = bytes_of(view.output(), batch)};
  const std::vector<int32_t>& inputs = view.step().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool again = std::find(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i),
                                 inputs[i]) != inputs.begin() + static_cast<std::ptrdiff_t>(i);
    if (!again) work.tensor_bytes += bytes_of(view.input(i), batch);
  }
  for (const auto& [role, name] : view.step().constants)
    work.constant_bytes += static_cast<double>(view.constant(role.c_str())->bytes.size());
  return work;
}

StepWork default_work(const StepView& view, int64_t batch) {
  return elementwise_work(view, batch);
}

StepWork picked_work(const StepView& view, int64_t batch, double taps, double per_element) {
  StepWork work = elementwise_work(view, batch, per_element);
  const double all = bytes_of(view.input(), batch);
  const double used =
      taps * elements_of(view.output(), batch) * static_cast<double>(element_bytes(view.input().type));
  work.tensor_bytes -= all - std::min(all, used);
  return work;
}

StepWork copied_work(const StepView& view, int64_t batch) {
  return picked_work(view, batch, 1, 0);
}

StepWork window_work(const StepView& view, int64_t batch, const Window& window, double inner) {
  const auto places = static_cast<double>(window.kernel_h * window.kernel_w);
  StepWork work = elementwise_work(view, batch, places * inner);
  const double share = touched(window.kernel_h, window.stride_h) * touched(window.kernel_w, window.stride_w);
  work.tensor_bytes -= (1 - share) * bytes_of(view.input(), batch);
  return work;
}

StepWork reduced_work(const StepView& view, int64_t batch, double per_element) {
  StepWork work = elementwise_work(view, batch);
  work.operations = per_element * elements_of(view.input(), batch);
  return work;
}

StepWork product_work(const StepView& view, int64_t batch, double products) {
  StepWork work = elementwise_work(view, batch, 2 * products);
  work.math = math_of(view.input().type);
  return work;
}

kernels::MathType math_of(DataType type) {
  switch (type) {
    case DataType::bf16:
      return kernels::MathType::bf16;
    case DataType::u8:
    case DataType::i8:
      return kernels::MathType::int8;
    default:
      return kernels::MathType::f32;
  }
}

}  // namespace ulp::runtime
