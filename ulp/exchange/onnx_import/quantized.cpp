#include "ulp/exchange/onnx_import/quantized.h"

#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/element_type.h"
#include "ulp/exchange/onnx_import/kept_name.h"
#include "ulp/exchange/onnx_import/small_types.h"
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

/// A tensor of the file.
Tensor stored(Call& call, const FileNode& node, size_t i, const char* what) {
  const bool there = i < node.inputs.size() && !node.inputs[i].empty();
  const Tensor found = there ? call.run().store().find(node.inputs[i]) : Tensor();
  if (!found.defined()) call.refuse("expected the ", what, " of codes to be a tensor of the file");
  return found;
}

/// The type of the codes that a QuantizeLinear gives, and their range.
void set_codes(Call& call, const FileNode& node, Step& step) {
  if (node.inputs.size() > 2 && !node.inputs[2].empty()) stored(call, node, 2, "zero point");
  const ElementType& range = code_type(call, node);
  if (range.highest == 0) call.refuse("expected codes of at most 16 bits, got ", range.name);
  step.lowest = range.lowest;
  step.highest = range.highest;
  step.type = range.held;
}

/// The name of a scale or a zero point, which other quantizers share; `ending` where others read it as it is
/// in the file.
std::string step_name(const Call& call, const FileNode& node, size_t i, const std::string& wish,
                      const std::string& ending) {
  const std::string& input = node.inputs.at(i);
  const bool steps_alone = std::ranges::all_of(call.analysis().uses(input), [](const Use& use) {
    return use.node->op == "QuantizeLinear" || use.node->op == "DequantizeLinear";
  });
  const bool taken = wish != input && call.run().store().find(wish).defined();
  return steps_alone && !taken && !call.analysis().is_result(input) ? wish : node.outputs.at(0) + ending;
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
  if (scale.dim() > 1 || !at::isFloatingType(scale.scalar_type()))
    call.refuse("expected one scale a channel");
  if (scale.numel() != 1) step.axis = inner.dim(inner.attribute("axis", int64_t{1}), rank);
  const std::string name = step_name(call, node, 1, without(node.inputs[1], {".onnx"}), ".scale");
  step.scale = store.attribute(name, Kind::buffer, [&] { return scale.to(at::kFloat).reshape({-1}); });
  const auto zeros = [&] {
    const Tensor zero = has_zero ? stored(call, node, 2, "zero point") : at::zeros({1}, at::kInt);
    return zero.to(at::kInt).reshape({-1}).expand({scale.numel()}).contiguous();
  };
  const std::string zero_name =
      has_zero ? step_name(call, node, 2, without(node.inputs[2], {".onnx"}), ".zero_point")
               : name + ".zero_point";
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

void quantize(Call& call) {
  constexpr int64_t kFloatType = 1;
  const int64_t precision = call.attribute("precision", int64_t{0});
  if (precision != 0 && precision != kFloatType)
    call.refuse("expected numbers to be divided in float, got ", type_name(precision));
  const Tensor x = call.x(0);
  if (is_of_numbers(call, call.node())) return quantize_as_numbers(call);
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
  const std::string name =
      kept_name(call, call.node(), 0, without(call.name(0), {".int8", ".int32", "_quantized"}));
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

/// Quantized and back again at once, which trains; undefined where the codes come from elsewhere, or lie in
/// blocks.
Tensor fake_quantized(Call& call) {
  const Partner before = partner(call);
  if (before.quantize == nullptr || code_type(call, *before.quantize).highest == 0) return {};
  const Call quantizer(call.run(), *before.quantize, Call::As::known);
  const auto in_blocks = [](const Call& one) { return one.attribute("block_size", int64_t{0}) != 0; };
  if (in_blocks(call) || in_blocks(quantizer)) return {};
  const Tensor x = call.run().tensor(before.quantize->inputs.at(0), call.node());
  Step step = step_of(call, *before.quantize, x.dim());
  if (before.clip != nullptr && !narrow_codes(call, *before.clip, step)) return {};
  return quant::fake_quantize(x, step.scale, step.zero_point, step.axis, step.lowest, step.highest);
}

/// A vector of codes of 8 bits beside others in sums and products alone, as the bias of a product whose
/// quantizer has rounded it: its numbers, since engines keep such operands in float. Undefined for all else.
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
  const std::string name = kept_name(call, call.node(), 0, without(call.name(0), {"_quantized"}));
  return call.run().store().attribute(name, Kind::buffer, values);
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
  if (call.attribute("block_size", int64_t{0}) != 0 && !is_of_numbers(call, call.node())) {
    const Tensor weight = block_weight(call, call.node());
    return set(call.dim(call.attribute("axis", int64_t{1}), 2) == 0 ? weight.t() : weight);
  }
  if (call.run().store().options().qdq == QdqForm::fake && !computed_step(call, call.node())) {
    if (const Tensor fake = fake_quantized(call); fake.defined()) return set(fake);
  }
  if (is_of_numbers(call, call.node())) return dequantize_as_numbers(call);
  if (codes.defined() && call.run().store().is_initializer(call.name(0)))
    return set(dequantized_weight(call, codes));
  const Tensor q = call.x(0);
  const Step step = step_of(call, call.node(), q.dim(), q.scalar_type());
  set(quant::dequantize(q, step.scale, step.zero_point, step.axis));
}

}  // namespace

Tensor clipped_codes(Call& clip) {
  const FileNode* quantize = clip.analysis().maker(clip.name(0));
  if (quantize == nullptr || quantize->op != "QuantizeLinear" || is_of_numbers(clip, *quantize)) return {};
  const Tensor x = clip.run().tensor(quantize->inputs.at(0), clip.node());
  Step step = step_of(clip, *quantize, x.dim());
  return narrow_codes(clip, clip.node(), step) ? codes_by(step, x) : Tensor();
}

Tensor turned_codes(Call& call, const FileNode& node) {
  Store& store = call.run().store();
  const std::string& name = node.inputs.at(0);
  const Tensor codes = store.is_initializer(name) ? store.find(name) : Tensor();
  if (!codes.defined() || codes.dim() != 2 || call.analysis().uses(name).size() != 1 ||
      is_of_numbers(call, node))
    return {};
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
