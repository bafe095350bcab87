// Quantizers by plain operators: scales that are computed, scales of blocks, codes of 16 bits, floats of 8
// and 4 bits.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx_import/kept_name.h"
#include "ulp/exchange/onnx_import/quantized.h"
#include "ulp/exchange/onnx_import/small_types.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

bool has_input(const FileNode& node, size_t i) {
  return i < node.inputs.size() && !node.inputs[i].empty();
}

/// Sizes of `one`, a scale or a zero point, over those of the codes: of one number, of one a channel, or of
/// one a block.
Tensor laid_over(const Call& call, const Tensor& one, const Tensor& codes) {
  const int64_t block = call.attribute("block_size", int64_t{0});
  if (block != 0) {
    const int64_t axis = call.dim(call.attribute("axis", int64_t{1}), codes.dim());
    const int64_t size = codes.size(axis);
    const int64_t blocks = block > 0 && size > 0 ? (size - 1) / block + 1 : 0;
    const bool fits = block > 0 && one.dim() == codes.dim() && one.size(axis) == blocks;
    if (!fits)
      call.refuse("expected a number for each block of ", block, " of ", codes.sizes(), ", got ",
                  one.sizes());
    // The last block may be as large as the file says: a place for each code, not for each of its block.
    const Tensor places = at::floor_divide(at::arange(size, at::TensorOptions(at::kLong)), block);
    return at::index_select(one, axis, places);
  }
  if (one.dim() > 1) call.refuse("expected one scale a tensor or a channel, got ", one.sizes());
  if (one.dim() == 0 || one.size(0) == 1) return one;
  std::vector<int64_t> sizes(static_cast<size_t>(codes.dim()), 1);
  sizes[static_cast<size_t>(call.dim(call.attribute("axis", int64_t{1}), codes.dim()))] = one.size(0);
  return at::reshape(one, sizes);
}

/// (q - z) s, in the type that the node gives.
Tensor numbers_of_codes(const Call& call, const Tensor& codes, const Tensor& scale, const Tensor& zero) {
  const Tensor q = codes.to(at::kFloat);
  const Tensor centered = zero.defined() ? at::sub(q, laid_over(call, zero.to(at::kFloat), q)) : q;
  const Tensor numbers = at::mul(centered, laid_over(call, scale.to(at::kFloat), q));
  const int64_t said = call.attribute("output_dtype", int64_t{0});
  const at::ScalarType type = said == 0 ? scale.scalar_type() : scalar_type(said, call.node().label());
  return type == at::kFloat ? numbers : numbers.to(type);
}

}  // namespace

const ElementType& code_type(const Call& call, const FileNode& node) {
  constexpr int64_t kUint8 = 2;
  int64_t type = Call(call.run(), node, Call::As::known).attribute("output_dtype", int64_t{0});
  if (type == 0 && has_input(node, 2)) type = type_of(call, node.inputs[2]);
  if (type == 0 && has_input(node, 2)) {
    Call inner(call.run(), node, Call::As::calls);
    type = data_type(inner.type(2));
  }
  const ElementType* found = find_element_type(type == 0 ? kUint8 : type);
  const bool known = found != nullptr && (found->highest != 0 || found->kind == NumberKind::small_float);
  if (!known) call.refuse("expected codes of at most 16 bits, got ", type_name(type));
  return *found;
}

bool computed_step(const Call& call, const FileNode& node) {
  const Store& store = call.run().store();
  return !store.find(node.inputs.at(1)).defined() ||
         (has_input(node, 2) && !store.find(node.inputs[2]).defined());
}

bool is_of_numbers(const Call& call, const FileNode& node) {
  if (computed_step(call, node)) return true;
  const auto is_kept = [](at::ScalarType type) {
    return type == at::kByte || type == at::kChar || type == at::kInt;
  };
  const bool blocks = Call(call.run(), node, Call::As::known).attribute("block_size", int64_t{0}) != 0;
  if (node.op == "QuantizeLinear") return blocks || !is_kept(code_type(call, node).held);
  const Tensor codes = call.run().store().find(node.inputs.at(0));
  if (blocks && !codes.defined()) return true;
  Call inner(call.run(), node, Call::As::calls);
  return !is_kept(codes.defined() ? codes.scalar_type() : inner.type(0));
}

void quantize_as_numbers(Call& call) {
  const ElementType& type = code_type(call, call.node());
  const Tensor x = call.x(0).to(at::kFloat);
  const Tensor steps = at::div(x, laid_over(call, call.x(1).to(at::kFloat), x));
  const bool small = type.kind == NumberKind::small_float;
  const Tensor rounded = small ? steps : at::round(steps);
  const Tensor moved = call.has(2) ? at::add(rounded, laid_over(call, call.x(2).to(at::kFloat), x)) : rounded;
  if (small) return call.set(to_small_float(moved, type, call.attribute("saturate", int64_t{1}) != 0));
  call.set(at::clamp(moved, type.lowest, type.highest).to(type.held));
}

void dequantize_as_numbers(Call& call) {
  Store& store = call.run().store();
  const std::string& name = call.name(0);
  const Tensor codes = store.find(name);
  if (!codes.defined() || !store.is_initializer(name) || computed_step(call, call.node()))
    return call.set(numbers_of_codes(call, call.x(0), call.x(1), call.has(2) ? call.x(2) : Tensor()));
  const auto values = [&] {
    const at::DisableRecordFunctionGuard beside_the_capture;
    const Tensor zero = call.has(2) ? store.find(call.name(2)) : Tensor();
    return numbers_of_codes(call, codes, store.find(call.name(1)), zero).contiguous();
  };
  const auto kind =
      call.analysis().is_parameter(name) ? graph::Attribute::Kind::parameter : graph::Attribute::Kind::buffer;
  call.set(store.attribute(kept_name(call, call.node(), 0, name), kind, values));
}

}  // namespace ulp::exchange::onnx_import
