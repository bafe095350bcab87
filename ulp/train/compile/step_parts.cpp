#include "ulp/train/compile/step_parts.h"

namespace ulp::train {

namespace {

std::vector<int64_t> sizes_at(const std::vector<graph::SizeExpr>& sizes, int64_t batch) {
  std::vector<int64_t> made;
  for (const graph::SizeExpr& size : sizes) made.push_back(size.at(batch));
  return made;
}

/// Whether a tensor has the sizes, without an allocation.
bool has_sizes(const at::Tensor& tensor, const std::vector<graph::SizeExpr>& sizes, int64_t batch) {
  if (tensor.dim() != static_cast<int64_t>(sizes.size())) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (tensor.size(static_cast<int64_t>(d)) != sizes[d].at(batch)) return false;
  }
  return true;
}

}  // namespace

CompiledStep::Parts::Given CompiledStep::Parts::check_tensors(const std::vector<at::Tensor>& inputs,
                                                              const at::Tensor& targets,
                                                              const at::Tensor& weights) {
  if (inputs.size() != built.inputs.size())
    fail(kStepWhere, "expected ", built.inputs.size(), " inputs, got ", inputs.size());
  int64_t samples = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (built.inputs[i].batch_dim == 0 && inputs[i].defined() && inputs[i].dim() > 0) {
      samples = inputs[i].size(0);
      break;
    }
  }
  check_batch(kStepWhere, samples);
  const auto check = [&](const at::Tensor& tensor, const std::string& name, at::ScalarType type,
                         const std::vector<graph::SizeExpr>& sizes) {
    if (tensor.defined() && tensor.scalar_type() == type && tensor.device().is_cpu() &&
        tensor.is_contiguous() && has_sizes(tensor, sizes, samples))
      return;
    const std::vector<int64_t> wanted = sizes_at(sizes, samples);
    if (!tensor.defined()) fail(kStepWhere, "expected a tensor for '", name, "', got none");
    fail(kStepWhere, "expected a contiguous tensor of ", type, ' ', at::IntArrayRef(wanted),
         " on the CPU for '", name, "', got ", tensor.dtype(), ' ', tensor.sizes());
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const compiled::StepInput& input = built.inputs[i];
    check(inputs[i], input.name, input.integers ? at::kLong : at::kFloat, input.sizes);
    pointers[i] = inputs[i].const_data_ptr();
  }
  if (weights.defined() && loss_function.kind != LossFunction::Kind::weighted_cross_entropy)
    fail(kStepWhere, "expected no weights, got some");
  if (loss_function.kind == LossFunction::Kind::none)
    return {targets.defined() ? targets.const_data_ptr() : nullptr, nullptr, samples};
  if (loss_function.takes_classes()) {
    check(targets, "targets", at::kLong, built.class_sizes);
  } else {
    check(targets, "targets", at::kFloat, built.sizes);
  }
  if (weights.defined() &&
      (weights.dim() != 1 || weights.scalar_type() != at::kFloat || !weights.is_contiguous() ||
       !weights.device().is_cpu() || weights.size(0) != built.sizes.front().at(samples))) {
    fail(kStepWhere, "expected weights of float32 [", built.sizes.front().at(samples), "], got ",
         weights.dtype(), ' ', weights.sizes());
  }
  return {targets.const_data_ptr(), weights.defined() ? weights.const_data_ptr<float>() : nullptr, samples};
}

}  // namespace ulp::train
