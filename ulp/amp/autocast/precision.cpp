#include "ulp/amp/autocast/precision.h"

#include <ATen/Context.h>
#include <torch/nn/modules/batchnorm.h>

#include <array>
#include <ostream>
#include <set>
#include <string>

#include "ulp/amp/autocast/op_policy.h"
#include "ulp/amp/autocast/wide_state.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/keeps_float.h"

namespace ulp::amp {

namespace {

using c10::kBFloat16;
using c10::kHalf;

// bf16 has fp32's exponents: what does not underflow in fp32 does not underflow in bf16.
constexpr Precision kPrecisions[] = {
    {.name = "fp32", .summary = "everything in fp32"},
    {.name = "tf32", .tf32 = true, .summary = "fp32, products on the GPU in tf32"},
    {.name = "bf16", .autocast_dtype = kBFloat16, .summary = "autocast to bf16, fp32 parameters"},
    {.name = "fp16",
     .autocast_dtype = kHalf,
     .needs_scaler = true,
     .summary = "autocast to fp16, fp32 parameters, loss scaling"},
    {.name = "mixed_bfloat16", .autocast_dtype = kBFloat16, .summary = "Keras's name for bf16"},
    {.name = "mixed_float16",
     .autocast_dtype = kHalf,
     .needs_scaler = true,
     .summary = "Keras's name for fp16"},
    {.name = "O0", .summary = "Apex's name for fp32"},
    {.name = "O1",
     .autocast_dtype = kHalf,
     .needs_scaler = true,
     .op_lists = OpLists::cuda_like,
     .summary = "autocast to fp16 by the CUDA lists, loss scaling"},
    {.name = "O1:bf16",
     .autocast_dtype = kBFloat16,
     .op_lists = OpLists::cuda_like,
     .summary = "autocast to bf16 by the CUDA lists"},
    {.name = "O2",
     .needs_scaler = true,
     .parameter_dtype = kHalf,
     .batch_norm_fp32 = true,
     .master_weights = true,
     .summary = "fp16 model, fp32 batch norms and masters, loss scaling"},
    {.name = "O2:bf16",
     .parameter_dtype = kBFloat16,
     .batch_norm_fp32 = true,
     .master_weights = true,
     .summary = "bf16 model, fp32 batch norms and masters"},
    {.name = "O3", .parameter_dtype = kHalf, .summary = "pure fp16"},
    {.name = "O3:bf16", .parameter_dtype = kBFloat16, .summary = "pure bf16"},
    {.name = "fp8:delayed",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp8 with scales from earlier steps"},
    {.name = "fp8:current",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp8 with scales of the tensors themselves"},
    {.name = "fp8:rowwise",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp8 with a scale for each row"},
    {.name = "fp8:block",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp8 with scales for 1x128 and 128x128 values"},
    {.name = "mxfp8",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp8 with scales for 32 values"},
    {.name = "nvfp4",
     .autocast_dtype = kBFloat16,
     .fp8 = true,
     .summary = "bf16, layers' products in fp4 with scales for 16 values"},
    {.name = "int8",
     .autocast_dtype = kBFloat16,
     .int8 = true,
     .summary = "bf16, linear layers' products in int8: int8:rowwise"},
    {.name = "int8:switchback",
     .autocast_dtype = kBFloat16,
     .int8 = true,
     .summary = "bf16, linear layers' products in int8 but for the gradients of weights"},
    {.name = "int8:rowwise",
     .autocast_dtype = kBFloat16,
     .int8 = true,
     .summary = "bf16, linear layers' products in int8 with a scale for each row"},
    {.name = "int8:jetfire",
     .autocast_dtype = kBFloat16,
     .int8 = true,
     .summary = "bf16, linear layers' products in int8 with scales for 32x32 values"},
};

/// The literals of a column.
constexpr auto column(std::string_view Precision::*text) {
  std::array<const char*, std::size(kPrecisions)> texts{};
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = (kPrecisions[i].*text).data();
  return texts;
}

using Tensors = std::set<const c10::TensorImpl*>;

void add(Tensors& tensors, const at::Tensor& tensor) {
  if (tensor.defined()) tensors.insert(tensor.unsafeGetTensorImpl());
}

Tensors of_batch_norms(const graph::Graph& graph) {
  Tensors result;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::batch_norm")) continue;
    for (graph::Value* value : node->reads()) add(result, graph.attribute_tensor(value));
  }
  return result;
}

/// The module and all in it.
template <typename Visit>
void visit_all(const torch::nn::Module& module, const Visit& visit) {
  visit(module);
  for (const auto& child : module.modules(/*include_self=*/false)) visit(*child);
}

void add_all(Tensors& tensors, const torch::nn::Module& module, bool recurse) {
  for (const at::Tensor& tensor : module.parameters(recurse)) add(tensors, tensor);
  for (const at::Tensor& tensor : module.buffers(recurse)) add(tensors, tensor);
}

Tensors of_batch_norms(const torch::nn::Module& module) {
  Tensors result;
  visit_all(module, [&](const torch::nn::Module& one) {
    if (const auto* captured = dynamic_cast<const graph::GraphModule*>(&one))
      result.merge(of_batch_norms(captured->graph()));
    else if (one.as<torch::nn::BatchNorm1d>() || one.as<torch::nn::BatchNorm2d>() ||
             one.as<torch::nn::BatchNorm3d>())
      add_all(result, one, /*recurse=*/false);
  });
  return result;
}

/// What no precision changes.
Tensors of_float_modules(const torch::nn::Module& module) {
  Tensors result;
  visit_all(module, [&](const torch::nn::Module& one) {
    if (dynamic_cast<const libtorch::KeepsFloat*>(&one) != nullptr) add_all(result, one, /*recurse=*/true);
  });
  return result;
}

/// A program that is linked without fp8 has no layers with such a state.
void add_fp8_states(Tensors& tensors, const torch::nn::Module& module) {
  const WideState* fp8 = fp8_state.find();
  if (fp8 == nullptr) return;
  for (const at::Tensor& tensor : fp8->tensors(module)) add(tensors, tensor);
}

}  // namespace

constinit Component<WideState> fp8_state("fp8");

std::span<const Precision> precisions() {
  return kPrecisions;
}

const Precision& find_precision(std::string_view name) {
  return *PrecisionName(name);
}

PrecisionName::PrecisionName(std::string_view name) {
  std::string known;
  for (const Precision& precision : kPrecisions) {
    if (precision.name == name) {
      index_ = static_cast<size_t>(&precision - kPrecisions);
      return;
    }
    known.append(known.empty() ? "" : ", ").append(precision.name);
  }
  fail("amp.find_precision", "expected one of ", known, ", got '", name, "'");
}

PrecisionName PrecisionName::at(size_t index) {
  return PrecisionName(precisions()[index].name);
}

std::span<const char* const> PrecisionName::choices() {
  static constexpr auto kNames = column(&Precision::name);
  return kNames;
}

std::span<const char* const> PrecisionName::choice_help() {
  static constexpr auto kSummaries = column(&Precision::summary);
  return kSummaries;
}

std::ostream& operator<<(std::ostream& out, const PrecisionName& precision) {
  return out << precision->name;
}

void check_device(const Precision& precision, c10::DeviceType device) {
  if (device != c10::kCPU && device != c10::kCUDA) {
    fail("amp.precision", "expected the device cpu or cuda for '", precision.name, "', got ",
         c10::DeviceTypeName(device, /*lower_case=*/true));
  }
  if (device == c10::kCUDA && !at::hasCUDA()) {
    fail("amp.precision", "expected a GPU for '", precision.name, "' on cuda, found none");
  }
  if (precision.tf32 && device == c10::kCPU) {
    fail("amp.precision", "expected a device with tf32, got cpu, which has none; use fp32");
  }
}

void apply_precision(torch::nn::Module& module, const Precision& precision) {
  if (!precision.parameter_dtype) return;
  Tensors kept = of_float_modules(module);
  if (precision.batch_norm_fp32) kept.merge(of_batch_norms(module));
  add_fp8_states(kept, module);
  const at::NoGradGuard no_grad;
  const auto cast = [&](at::Tensor& tensor) {
    if (tensor.scalar_type() != c10::kFloat || kept.contains(tensor.unsafeGetTensorImpl())) return;
    if (tensor.requires_grad()) tensor.mutable_grad().reset();
    tensor.set_data(tensor.to(*precision.parameter_dtype));
  };
  for (at::Tensor& tensor : module.parameters()) cast(tensor);
  for (at::Tensor& tensor : module.buffers()) cast(tensor);
  visit_all(module, [&](const torch::nn::Module& one) {
    const auto* captured = dynamic_cast<const graph::GraphModule*>(&one);
    if (captured == nullptr) return;
    for (const auto& [name, attribute] : captured->graph().attributes()) {
      at::Tensor tensor = attribute.tensor;
      if (attribute.kind == graph::Attribute::Kind::constant) cast(tensor);
    }
  });
}

Autocast autocast_for(const Precision& precision, c10::DeviceType device) {
  check_device(precision, device);
  const bool enabled = precision.autocast_dtype.has_value();
  const c10::ScalarType dtype = precision.autocast_dtype.value_or(kBFloat16);
  if (enabled && precision.op_lists == OpLists::cuda_like) {
    return Autocast(device, dtype, OpPolicy::cuda_like());
  }
  if (precision.parameter_dtype) return Autocast::as_given(device, *precision.parameter_dtype);
  return Autocast(device, dtype, enabled);
}

at::Tensor cast_input(const Precision& precision, const at::Tensor& input) {
  const bool cast = precision.parameter_dtype && input.scalar_type() == c10::kFloat;
  return cast ? input.to(*precision.parameter_dtype) : input;
}

bool allow_tf32(bool allow) {
  if (allow && !at::hasCUDA()) {
    fail("amp.allow_tf32", "expected a GPU to compute in tf32, found none; fp32 stays fp32 on a CPU");
  }
  at::Context& context = at::globalContext();
  const bool before = context.allowTF32CuBLAS() && context.allowTF32CuDNN();
  context.setFloat32MatmulPrecision(allow ? "high" : "highest");
  context.setAllowTF32CuDNN(allow);
  return before;
}

}  // namespace ulp::amp
