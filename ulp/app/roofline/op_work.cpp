#include "ulp/app/roofline/op_work.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace ulp::app {

namespace {

using at::Tensor;
using Products = double (*)(const CalledOp&);

double numel(const Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

/// Of elements that are in memory: an expanded tensor has more.
double bytes_of(const Tensor& tensor) {
  const double all = numel(tensor) * static_cast<double>(tensor.element_size());
  return tensor.has_storage() ? std::min(all, static_cast<double>(tensor.storage().nbytes())) : all;
}

double per_output(const Tensor& weight) {
  return weight.size(0) == 0 ? 0 : numel(weight) / static_cast<double>(weight.size(0));
}

double convolution(const CalledOp& call) {
  return numel(call.outputs.at(0)) * per_output(call.inputs.at(1));
}
double transposed_convolution(const CalledOp& call) {
  return numel(call.inputs.at(0)) * per_output(call.inputs.at(1));
}
/// The gradient of the input, of the weight, or both.
double convolution_backward(const CalledOp& call) {
  const Tensor &grad = call.inputs.at(0), &x = call.inputs.at(1), &weight = call.inputs.at(2);
  const bool transposed = grad.size(1) != weight.size(0);
  const double each = (transposed ? numel(x) : numel(grad)) * per_output(weight);
  const auto results = std::ranges::count_if(call.outputs, [](const Tensor& t) { return t.dim() > 1; });
  return static_cast<double>(results) * each;
}
/// out[..., n] from a[..., k]: the tensor at `A` has the inner size last.
template <int A>
double product(const CalledOp& call) {
  return numel(call.outputs.at(0)) * static_cast<double>(call.inputs.at(A).size(-1));
}
double attention(const CalledOp& call) {
  const Tensor &q = call.inputs.at(0), &k = call.inputs.at(1);
  const double keys = static_cast<double>(k.size(-2));
  return 2 * numel(q) * (call.causal ? (keys + 1) / 2 : keys);
}
/// Five products of matrices where the forward pass has two. Inputs: the gradient, q, k, v.
double attention_backward(const CalledOp& call) {
  const CalledOp forward{call.op, {call.inputs.at(1), call.inputs.at(2)}, {}, call.causal};
  return 5.0 / 2 * attention(forward);
}
/// Every step of time multiplies all weights.
double recurrent(const CalledOp& call) {
  const Tensor& x = call.inputs.at(0);
  double weights = 0;
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (call.inputs[i].dim() == 2) weights += numel(call.inputs[i]);
  }
  return weights * numel(x) / static_cast<double>(x.size(-1));
}

const std::map<std::string_view, Products>& products() {
  static const std::map<std::string_view, Products> all = {
      {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},
      {"aten::conv3d", convolution},
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},
      {"aten::conv_transpose1d", transposed_convolution},
      {"aten::conv_transpose2d", transposed_convolution},
      {"aten::conv_transpose3d", transposed_convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::linear", product<0>},
      {"aten::matmul", product<0>},
      {"aten::mm", product<0>},
      {"aten::bmm", product<0>},
      {"aten::mv", product<0>},
      {"aten::addmm", product<1>},
      {"aten::baddbmm", product<1>},
      {"aten::scaled_dot_product_attention", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::lstm", recurrent},
      {"aten::gru", recurrent},
  };
  return all;
}

/// Ops that read of their first tensor no more than they write.
bool picks(std::string_view op) {
  return op == "aten::embedding" || op == "aten::index" || op == "aten::index_select" ||
         op == "aten::gather" || op == "aten::narrow_copy";
}

bool is_view(const CalledOp& call) {
  return !call.in_place && std::ranges::any_of(call.outputs, [&](const Tensor& output) {
    return std::ranges::any_of(call.inputs, [&](const Tensor& input) {
      return output.has_storage() && input.has_storage() && output.is_alias_of(input);
    });
  });
}

double moved(const CalledOp& call) {
  double read = 0, written = 0;
  std::vector<const void*> seen;
  for (const Tensor& output : call.outputs) written += bytes_of(output);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = call.inputs[i];
    const void* data = input.has_storage() ? input.storage().data() : nullptr;
    if (data != nullptr && std::ranges::find(seen, data) != seen.end()) continue;
    seen.push_back(data);
    read += i == 0 && picks(call.op) ? std::min(bytes_of(input), written) : bytes_of(input);
  }
  return read + written;
}

/// Products of numbers of the result's type; under autocast they were rounded to it first.
kernels::MathType math_of(const Tensor& result) {
  return result.scalar_type() == at::kBFloat16 ? kernels::MathType::bf16 : kernels::MathType::f32;
}

}  // namespace

runtime::StepWork work_of(const CalledOp& call) {
  if (call.outputs.empty() || is_view(call)) return {};
  runtime::StepWork work{.math = math_of(call.outputs[0]), .tensor_bytes = moved(call)};
  if (const auto found = products().find(call.op); found != products().end()) {
    work.operations = 2 * found->second(call);
    return work;
  }
  work.math = kernels::MathType::f32;
  for (const auto* tensors : {&call.inputs, &call.outputs}) {
    for (const Tensor& tensor : *tensors) work.operations = std::max(work.operations, numel(tensor));
  }
  return work;
}

}  // namespace ulp::app
