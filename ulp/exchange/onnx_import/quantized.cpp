#include "ulp/exchange/onnx_import/quantized.h"

#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>

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
  int64_t lowest = 0, highest = 255;  ///< codes
};

/// The name without an ending that says how it is stored.
std::string without(std::string name, std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings) {
    if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

/// The codes of a type of TensorProto that has at most 8 bits.
struct CodeRange {
  int64_t type, lowest, highest;
};
constexpr CodeRange kCodeRanges[] = {{2, 0, 255}, {3, -128, 127}, {21, 0, 15},
                                     {22, -8, 7}, {25, 0, 3},     {26, -2, 1}};

/// A tensor of the file.
Tensor stored(Call& call, const FileNode& node, size_t i, const char* what) {
  const bool there = i < node.inputs.size() && !node.inputs[i].empty();
  const Tensor found = there ? call.run().store().find(node.inputs[i]) : Tensor();
  if (!found.defined()) call.refuse("expected the ", what, " of codes to be a tensor of the file");
  return found;
}

/// The type of the codes that a QuantizeLinear gives, and their range.
void set_codes(Call& call, const FileNode& node, Step& step) {
  constexpr int64_t kUint8 = 2;
  const Call inner(call.run(), node, Call::As::known);
  int64_t type = inner.attribute("output_dtype", int64_t{0});
  if (node.inputs.size() > 2 && !node.inputs[2].empty()) {
    stored(call, node, 2, "zero point");
    type = call.run().store().type_of(node.inputs[2]);
  }
  if (type == 0) type = kUint8;
  const auto range = std::ranges::find(kCodeRanges, type, &CodeRange::type);
  if (range == std::end(kCodeRanges)) call.refuse("expected codes of at most 8 bits, got ", type_name(type));
  step.lowest = range->lowest;
  step.highest = range->highest;
  step.type = range->lowest < 0 ? at::kChar : at::kByte;
}

/// `rank` is that of the codes; `type` of codes that are in the file.
Step step_of(Call& call, const FileNode& node, int64_t rank, std::optional<at::ScalarType> type = {}) {
  const Call inner(call.run(), node, Call::As::known);
  if (inner.attribute("block_size", int64_t{0}) != 0) call.refuse("expected one scale a tensor or a channel");
  Store& store = call.run().store();
  const Tensor scale = stored(call, node, 1, "scale");
  const bool has_zero = node.inputs.size() > 2 && !node.inputs[2].empty();
  Step step;
  if (type) {
    step.type = *type;
    step.lowest = *type == at::kChar ? -128 : 0;
    step.highest = *type == at::kChar ? 127 : 255;
  } else {
    set_codes(call, node, step);
  }
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

Tensor codes_by(const Step& step, const Tensor& x) {
  const Tensor floats = x.scalar_type() == at::kFloat ? x : x.to(at::kFloat);
  return quant::quantize(floats, step.scale, step.zero_point, step.axis, step.lowest, step.highest,
                         step.type);
}

/// Whether a node's scale is computed as the network runs, or in the file.
bool is_computed(Call& call) {
  return !call.run().store().find(call.name(1)).defined();
}

/// A scale or a zero point that is computed, along the dimension of `x` that has one for each index.
Tensor along_axis(Call& call, size_t i, const Tensor& x) {
  const Tensor value = call.x(i).to(at::kFloat);
  if (call.attribute("block_size", int64_t{0}) != 0 || value.dim() > 1)
    call.refuse("expected one scale a tensor or a channel");
  if (value.dim() == 0 || value.size(0) == 1) return value;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(call.dim(call.attribute("axis", int64_t{1}), x.dim()))] = value.size(0);
  return at::reshape(value, sizes);
}

/// By a scale that is computed: no engine has codes of it.
void quantize_by_computed(Call& call, const Tensor& x) {
  Step step;
  if (call.has(2) && !call.run().store().find(call.name(2)).defined()) {
    if (is_of_few_bits(call, call.name(2))) call.refuse("expected a zero point of 4 or 2 bits in the file");
    step.type = call.x(2).scalar_type();
    if (step.type != at::kByte && step.type != at::kChar) call.refuse("expected codes of 8 bits");
    step.lowest = step.type == at::kChar ? -128 : 0;
    step.highest = step.type == at::kChar ? 127 : 255;
  } else {
    set_codes(call, call.node(), step);
  }
  const Tensor steps = at::round(at::div(x.to(at::kFloat), along_axis(call, 1, x)));
  const Tensor moved = call.has(2) ? at::add(steps, along_axis(call, 2, x)) : steps;
  call.set(at::clamp(moved, step.lowest, step.highest).to(step.type));
}

void dequantize_by_computed(Call& call) {
  const Tensor q = call.x(0), codes = q.to(at::kFloat);
  const Tensor centered = call.has(2) ? at::sub(codes, along_axis(call, 2, q)) : codes;
  const Tensor numbers = at::mul(centered, along_axis(call, 1, q));
  const at::ScalarType type = call.x(1).scalar_type();
  call.set(type == at::kFloat ? numbers : numbers.to(type));
}

void quantize(Call& call) {
  constexpr int64_t kFloatType = 1;
  const int64_t precision = call.attribute("precision", int64_t{0});
  if (precision != 0 && precision != kFloatType)
    call.refuse("expected numbers to be divided in float, got ", type_name(precision));
  const Tensor x = call.x(0);
  if (is_computed(call)) return quantize_by_computed(call, x);
  call.set(codes_by(step_of(call, call.node(), x.dim()), x));
}

/// The codes that a Clip leaves of those of a quantizer: narrower ones.
bool narrow_codes(Call& call, const FileNode& clip, Step& step) {
  Call inner(call.run(), clip, Call::As::known);
  for (const size_t i : {1, 2}) {
    if (!inner.has(i)) continue;
    const std::optional<at::Scalar> bound = inner.scalar(i);
    if (!bound) return false;
    if (i == 1) step.lowest = std::max(step.lowest, bound->toLong());
    if (i == 2) step.highest = std::min(step.highest, bound->toLong());
  }
  return step.lowest <= step.highest;
}

/// The numbers as the type that the node gives: that of its scale, unless it says another.
Tensor in_type_of(Call& call, const FileNode& node, const Tensor& values) {
  const Call inner(call.run(), node, Call::As::known);
  const int64_t given = inner.attribute("output_dtype", int64_t{0});
  const at::ScalarType type =
      given == 0 ? stored(call, node, 1, "scale").scalar_type() : scalar_type(given, node.label());
  return values.scalar_type() == type ? values : values.to(type);
}

/// A weight or a bias that trains, from its codes.
Tensor trained(Call& call, const Step& step, const Tensor& codes) {
  const std::string name = without(call.name(0), {".int8", ".int32", "_quantized"});
  const auto values = [&] { return quant::dequantize(codes, step.scale, step.zero_point, step.axis); };
  const Tensor weight = call.run().store().attribute(name, Kind::parameter, values);
  if (codes.scalar_type() == at::kInt) return weight;
  return quant::fake_quantize(weight, step.scale, step.zero_point, step.axis, step.lowest, step.highest);
}

/// The QuantizeLinear whose codes are read with the same step, and the Clip between them.
struct Partner {
  const FileNode *quantize = nullptr, *clip = nullptr;
};
Partner partner(const Call& call) {
  Partner found{.quantize = call.analysis().maker(call.name(0))};
  if (found.quantize != nullptr && found.quantize->op == "Clip" && !found.quantize->inputs.empty()) {
    found.clip = found.quantize;
    found.quantize = call.analysis().maker(found.clip->inputs[0]);
  }
  const FileNode* node = found.quantize;
  if (node == nullptr || node->op != "QuantizeLinear" || !node->domain.empty()) return {};
  const std::vector<std::string>&a = node->inputs, &b = call.node().inputs;
  const Store& store = call.run().store();
  const auto same = [&](const std::string& one, const std::string& other) {
    if (one == other) return true;
    const at::DisableRecordFunctionGuard beside_the_capture;
    const Tensor first = store.find(one), second = store.find(other);
    return first.defined() && second.defined() && first.scalar_type() == second.scalar_type() &&
           at::equal(first, second);
  };
  return std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end(), same) ? found : Partner();
}

/// Quantized and back again at once, which trains; undefined where the codes come from elsewhere.
Tensor fake_quantized(Call& call) {
  const Partner before = partner(call);
  if (before.quantize == nullptr) return {};
  const Tensor x = call.run().tensor(before.quantize->inputs.at(0), call.node());
  Step step = step_of(call, *before.quantize, x.dim());
  if (before.clip != nullptr && !narrow_codes(call, *before.clip, step)) return {};
  return quant::fake_quantize(x, step.scale, step.zero_point, step.axis, step.lowest, step.highest);
}

/// A vector of codes of 8 bits beside others in sums and products alone, as the bias of a product whose quantizer has rounded it: its
/// numbers, since engines keep such operands in float. Undefined for all else.
Tensor numbers_beside(Call& call, const Step& step, const Tensor& codes) {
  constexpr std::string_view kBeside[] = {"Add", "Sub", "Mul", "Div"};
  const std::string& output = call.node().outputs.at(0);
  const std::vector<Use>& uses = call.analysis().uses(output);
  const auto is_beside = [&](const Use& use) {
    return std::ranges::find(kBeside, std::string_view(use.node->op)) != std::end(kBeside);
  };
  if (codes.dim() != 1 || codes.scalar_type() == at::kInt || uses.empty() ||
      call.analysis().is_result(output) || !std::ranges::all_of(uses, is_beside))
    return {};
  const auto values = [&] { return quant::dequantize(codes, step.scale, step.zero_point, step.axis); };
  return call.run().store().attribute(without(call.name(0), {"_quantized"}), Kind::buffer, values);
}

/// Codes that are a tensor of the file.
Tensor dequantized_weight(Call& call, const Tensor& codes) {
  if (const auto coded = coded_weight(call, call.node())) {
    const Tensor all =
        coded->offset.defined() ? at::add(coded->weight, at::unsqueeze(coded->offset, 1)) : coded->weight;
    return coded->transposed ? all.t() : all;
  }
  if (call.analysis().only_multiplies(call.node().outputs.at(0))) {
    if (const Tensor turned = turned_codes(call, call.node()); turned.defined()) return turned.t();
  }
  const Step step = step_of(call, call.node(), codes.dim(), codes.scalar_type());
  if (call.run().store().options().qdq == QdqForm::fake) return trained(call, step, codes);
  if (const Tensor numbers = numbers_beside(call, step, codes); numbers.defined()) return numbers;
  return quant::dequantize(call.x(0), step.scale, step.zero_point, step.axis);
}

void dequantize(Call& call) {
  const Tensor codes = call.run().store().find(call.name(0));
  const auto set = [&](const Tensor& values) { call.set(in_type_of(call, call.node(), values)); };
  if (call.attribute("block_size", int64_t{0}) != 0) {
    const Tensor weight = block_weight(call, call.node());
    return set(call.dim(call.attribute("axis", int64_t{1}), 2) == 0 ? weight.t() : weight);
  }
  if (is_computed(call)) return dequantize_by_computed(call);
  if (codes.defined() && call.run().store().is_initializer(call.name(0)))
    return set(dequantized_weight(call, codes));
  if (call.run().store().options().qdq == QdqForm::fake) {
    if (const Tensor fake = fake_quantized(call); fake.defined()) return set(fake);
  }
  const Tensor q = call.x(0);
  const Step step = step_of(call, call.node(), q.dim(), q.scalar_type());
  set(quant::dequantize(q, step.scale, step.zero_point, step.axis));
}

}  // namespace

Tensor clipped_codes(Call& clip) {
  const FileNode* quantize = clip.analysis().maker(clip.name(0));
  if (quantize == nullptr || quantize->op != "QuantizeLinear") return {};
  const Tensor x = clip.run().tensor(quantize->inputs.at(0), clip.node());
  Step step = step_of(clip, *quantize, x.dim());
  return narrow_codes(clip, clip.node(), step) ? codes_by(step, x) : Tensor();
}

Tensor turned_codes(Call& call, const FileNode& node) {
  Store& store = call.run().store();
  const std::string& name = node.inputs.at(0);
  const Tensor codes = store.is_initializer(name) ? store.find(name) : Tensor();
  if (!codes.defined() || codes.dim() != 2 || call.analysis().uses(name).size() != 1) return {};
  const Call inner(call.run(), node, Call::As::known);
  if (inner.attribute("block_size", int64_t{0}) != 0) {
    const bool columns = inner.dim(inner.attribute("axis", int64_t{1}), 2) == 0;
    return columns ? in_type_of(call, node, block_weight(call, node)) : Tensor();
  }
  Step step = step_of(call, node, 2, codes.scalar_type());
  if (step.axis >= 0) step.axis = 1 - step.axis;
  const Tensor turned = codes.t().contiguous();
  if (store.options().qdq == QdqForm::fake) {
    Call reader(call.run(), node, Call::As::calls);
    return in_type_of(call, node, trained(reader, step, turned));
  }
  const Tensor kept = store.attribute(name, Kind::buffer, [&] { return turned; });
  return in_type_of(call, node, quant::dequantize(kept, step.scale, step.zero_point, step.axis));
}

ConverterTable quantize_table() {
  static constexpr Converter kTable[] = {{"QuantizeLinear", quantize, first_input},
                                         {"DequantizeLinear", dequantize, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
