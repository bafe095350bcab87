#include "ulp/exchange/onnx_import/quantized.h"

#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Kind = graph::Attribute::Kind;

/// Scale and zero point of one quantizer.
struct Step {
  Tensor scale, zero_point;  ///< f32 and int32, [1] or [channels]
  int64_t axis = -1;         ///< -1: one for all
  at::ScalarType type = at::kByte;
};

/// The name without an ending that says how it is stored.
std::string without(std::string name, std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings) {
    if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

/// A tensor of the file.
Tensor stored(Call& call, const FileNode& node, size_t i, const char* what) {
  const bool there = i < node.inputs.size() && !node.inputs[i].empty();
  const Tensor found = there ? call.run().store().find(node.inputs[i]) : Tensor();
  if (!found.defined()) call.refuse("expected the ", what, " of codes to be a tensor of the file");
  return found;
}

/// Types of codes by TensorProto's number.
at::ScalarType code_type(Call& call, const FileNode& node) {
  if (node.inputs.size() > 2 && !node.inputs[2].empty())
    return stored(call, node, 2, "zero point").scalar_type();
  const Call inner(call.run(), node, Call::As::known);
  const int64_t given = inner.attribute("output_dtype", int64_t{0});
  return given == 0 ? at::kByte : scalar_type(given, node.label());
}

/// `rank` is that of the codes; `type` of codes that are in the file.
Step step_of(Call& call, const FileNode& node, int64_t rank, std::optional<at::ScalarType> type = {}) {
  const Call inner(call.run(), node, Call::As::known);
  if (inner.attribute("block_size", int64_t{0}) != 0) call.refuse("expected one scale a tensor or a channel");
  Store& store = call.run().store();
  const Tensor scale = stored(call, node, 1, "scale");
  const bool has_zero = node.inputs.size() > 2 && !node.inputs[2].empty();
  Step step;
  step.type = type ? *type : code_type(call, node);
  const bool fits = step.type == at::kByte || step.type == at::kChar || step.type == at::kInt;
  if (!fits) call.refuse("expected codes of 8 bits, or a bias of 32, got ", step.type);
  if (scale.dim() > 1 || !at::isFloatingType(scale.scalar_type()))
    call.refuse("expected one scale a channel");
  if (scale.numel() != 1) step.axis = inner.dim(inner.attribute("axis", int64_t{1}), rank);
  const std::string name = without(node.inputs[1], {".onnx"});
  step.scale = store.attribute(name, Kind::buffer, [&] { return scale.to(at::kFloat).reshape({-1}); });
  const auto zeros = [&] {
    const Tensor zero = has_zero ? stored(call, node, 2, "zero point") : at::zeros({1}, at::kInt);
    return zero.to(at::kInt).reshape({-1}).expand({scale.numel()}).contiguous();
  };
  const std::string zero_name = has_zero ? without(node.inputs[2], {".onnx"}) : name + ".zero_point";
  // One zero point may stand beside scales of several lengths.
  const std::string own = zero_name + (zero_name == name ? ".zero_point" : "");
  step.zero_point = store.attribute(own, Kind::buffer, zeros);
  if (step.zero_point.numel() != step.scale.numel())
    step.zero_point = store.attribute(name + ".zero_point", Kind::buffer, zeros);
  return step;
}

int64_t lowest(at::ScalarType type) {
  return type == at::kChar ? -128 : 0;
}
int64_t highest(at::ScalarType type) {
  return type == at::kChar ? 127 : 255;
}

void quantize(Call& call) {
  const Tensor x = call.x(0);
  const Step step = step_of(call, call.node(), x.dim());
  if (step.type == at::kInt) call.refuse("expected codes of 8 bits");
  call.set(quant::quantize(x, step.scale, step.zero_point, step.axis, lowest(step.type), highest(step.type),
                           step.type));
}

/// A weight or a bias that trains, from its codes.
Tensor trained(Call& call, const Step& step, const Tensor& codes) {
  const std::string name = without(call.name(0), {".int8", ".int32", "_quantized"});
  const auto values = [&] { return quant::dequantize(codes, step.scale, step.zero_point, step.axis); };
  const Tensor weight = call.run().store().attribute(name, Kind::parameter, values);
  if (codes.scalar_type() == at::kInt) return weight;
  return quant::fake_quantize(weight, step.scale, step.zero_point, step.axis, lowest(step.type),
                              highest(step.type));
}

/// The QuantizeLinear whose codes are read with the same step, or null.
const FileNode* partner(const Call& call) {
  const FileNode* before = call.analysis().maker(call.name(0));
  if (before == nullptr || before->op != "QuantizeLinear" || !before->domain.empty()) return nullptr;
  const std::vector<std::string>&a = before->inputs, &b = call.node().inputs;
  const bool same = std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
  return same ? before : nullptr;
}

void dequantize(Call& call) {
  const bool fake = call.run().store().options().qdq == QdqForm::fake;
  const Tensor codes = call.run().store().find(call.name(0));
  if (call.attribute("block_size", int64_t{0}) != 0) {
    const Tensor weight = block_weight(call, call.node());
    return call.set(call.dim(call.attribute("axis", int64_t{1}), 2) == 0 ? weight.t() : weight);
  }
  if (codes.defined() && call.run().store().is_initializer(call.name(0))) {
    const Tensor turned = call.analysis().only_multiplies(call.node().outputs.at(0))
                              ? turned_codes(call, call.node())
                              : Tensor();
    if (turned.defined()) return call.set(turned.t());
    const Step step = step_of(call, call.node(), codes.dim(), codes.scalar_type());
    return call.set(fake ? trained(call, step, codes)
                         : quant::dequantize(call.x(0), step.scale, step.zero_point, step.axis));
  }
  const FileNode* before = fake ? partner(call) : nullptr;
  const Tensor q = call.x(0);
  const Step step = step_of(call, call.node(), q.dim(), q.scalar_type());
  if (before == nullptr) return call.set(quant::dequantize(q, step.scale, step.zero_point, step.axis));
  const Tensor x = call.run().tensor(before->inputs.at(0), call.node());
  call.set(
      quant::fake_quantize(x, step.scale, step.zero_point, step.axis, lowest(step.type), highest(step.type)));
}

}  // namespace

Tensor turned_codes(Call& call, const FileNode& node) {
  Store& store = call.run().store();
  const std::string& name = node.inputs.at(0);
  const Tensor codes = store.is_initializer(name) ? store.find(name) : Tensor();
  if (!codes.defined() || codes.dim() != 2 || call.analysis().uses(name).size() != 1) return {};
  const Call inner(call.run(), node, Call::As::known);
  if (inner.attribute("block_size", int64_t{0}) != 0) {
    const bool columns = inner.dim(inner.attribute("axis", int64_t{1}), 2) == 0;
    return columns ? block_weight(call, node) : Tensor();
  }
  Step step = step_of(call, node, 2, codes.scalar_type());
  if (step.axis >= 0) step.axis = 1 - step.axis;
  const Tensor turned = codes.t().contiguous();
  if (store.options().qdq == QdqForm::fake) {
    Call inner(call.run(), node, Call::As::calls);
    return trained(inner, step, turned);
  }
  const Tensor kept = store.attribute(name, Kind::buffer, [&] { return turned; });
  return quant::dequantize(kept, step.scale, step.zero_point, step.axis);
}

ConverterTable quantize_table() {
  static constexpr Converter kTable[] = {{"QuantizeLinear", quantize, first_input},
                                         {"DequantizeLinear", dequantize, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
