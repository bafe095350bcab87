// Cast and CastLike, also to types for which LibTorch has no arithmetic, or none at all.
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/element_type.h"
#include "ulp/exchange/onnx_import/movers.h"
#include "ulp/exchange/onnx_import/small_types.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Numbers of 16 bits and whole numbers as floats, which LibTorch's casts to 8 bits begin with.
Tensor as_floats(const Tensor& x) {
  const bool wide = at::isFloatingType(x.scalar_type()) && !at::isReducedFloatingType(x.scalar_type());
  return wide ? x : x.to(at::kFloat);
}

/// To the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, to the even code of two; NaN is 0, as in
/// ml_dtypes.
Tensor to_four_bits(const Tensor& x) {
  const Tensor number = at::clamp(at::nan_to_num(as_floats(x), 0.0), -6, 6).to(at::kFloat);
  const Tensor size = at::abs(number);
  const Tensor by_twos = at::mul(at::round(at::mul(number, 0.5)), 2),
               by_halves = at::mul(at::round(at::mul(number, 2)), 0.5);
  return at::where(at::ge(size, 4), by_twos, at::where(at::ge(size, 2), at::round(number), by_halves));
}

/// The lowest bits of the whole part.
Tensor to_few_bits(const Tensor& x, const ElementType& to) {
  const Tensor moved = at::add(x.to(at::kLong), -to.lowest);
  return at::sub(at::remainder(moved, to.highest - to.lowest + 1), -to.lowest).to(to.held);
}

Tensor cast_to(const Call& call, const Tensor& x, int64_t to) {
  const bool saturate = call.attribute("saturate", int64_t{1}) != 0;
  const ElementType* type = find_element_type(to);
  if (type != nullptr && type->kind == NumberKind::few_bits) return to_few_bits(x, *type);
  if (type != nullptr && type->kind == NumberKind::small_float)
    return x.scalar_type() == type->held && type->bits == 0 ? x : to_small_float(x, *type, saturate);
  const at::ScalarType plain = scalar_type(to, call.node().label());
  return x.scalar_type() == plain ? x : x.to(plain);
}

void cast(Call& call) {
  call.set(cast_to(call, call.x(0), call.attribute("to", int64_t{0})));
}

void cast_like(Call& call) {
  if (const int64_t type = type_of(call, call.name(1)); type != 0)
    return call.set(cast_to(call, call.x(0), type));
  call.set(cast_to(call, call.x(0), data_type(call.x(1).scalar_type())));
}

/// The type that a node gives its first result; 0 where that follows from how it computes it. `input` is the
/// type of an input.
template <typename Input>
int64_t made_type(const Call& call, const FileNode& node, const Input& input) {
  const Call inner(call.run(), node, Call::As::known);
  if (node.op == "Cast" || node.op == "BitCast") return inner.attribute("to", int64_t{0});
  if (node.op == "CastLike") return input(1);
  if (node.op == "QuantizeLinear") {
    const int64_t said = inner.attribute("output_dtype", int64_t{0});
    return said == 0 ? input(2) : said;
  }
  if (node.op == "ConstantOfShape") {
    const FileAttribute* value = node.find("value");
    return value == nullptr ? 0 : value->tensor_type;
  }
  return is_mover(node.op) || node.op == "Pad" ? input(0) : 0;
}

}  // namespace

Tensor to_small_float(const Tensor& x, const ElementType& to, bool saturate) {
  if (to.bits == 4) return to_four_bits(x);
  const Tensor floats = as_floats(x);
  if (saturate) return at::clamp(floats, -to.largest, to.largest).to(to.held);
  if (to.held == at::kFloat8_e5m2) return floats.to(to.held);
  // Halfway to where the next number would be, the even code is that of the largest in e4m3fn, and in the two
  // fnuz that of none.
  const Tensor size = at::abs(floats);
  const Tensor outside = to.held == at::kFloat8_e4m3fn ? at::gt(size, to.halfway) : at::ge(size, to.halfway);
  return at::masked_fill(floats, outside, std::numeric_limits<double>::quiet_NaN()).to(to.held);
}

int64_t type_of(const Call& call, const std::string& value) {
  constexpr int kFurthest = 1000;
  const Store& store = call.run().store();
  std::string name = value;
  for (int step = 0; step < kFurthest; ++step) {
    if (const int64_t stored = store.type_of(name); stored != 0) return stored;
    for (const FileValue& input : store.model().graph.inputs) {
      if (input.name == name) return input.type;
    }
    const FileNode* maker = call.analysis().maker(name);
    if (maker == nullptr || !maker->domain.empty()) return 0;
    std::string next;
    const auto input = [&](size_t i) {
      if (i < maker->inputs.size()) next = maker->inputs[i];
      return int64_t{0};
    };
    if (const int64_t made = made_type(call, *maker, input); made != 0 || next.empty()) return made;
    name = next;
  }
  return 0;
}

bool is_of_few_bits(const Call& call, const std::string& value) {
  const ElementType* type = find_element_type(type_of(call, value));
  return type != nullptr && type->kind == NumberKind::few_bits;
}

at::ScalarType input_type(int64_t type, const std::string& where) {
  const ElementType* row = find_element_type(type);
  return row != nullptr && row->held != at::ScalarType::Undefined ? row->held : scalar_type(type, where);
}

ConverterTable cast_table() {
  static constexpr Converter kTable[] = {{"Cast", cast, first_input}, {"CastLike", cast_like, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
