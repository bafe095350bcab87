// Cast and CastLike, also to types for which LibTorch has no arithmetic, or none at all.
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Numbers of 8 bits as TensorProto and LibTorch name them.
struct SmallFloat {
  int64_t data_type;
  at::ScalarType type;
  double largest;
  double beyond;  ///< halfway from the largest to what would be the next
};
constexpr SmallFloat kSmallFloats[] = {{17, at::kFloat8_e4m3fn, 448, 464},
                                       {18, at::kFloat8_e4m3fnuz, 240, 248},
                                       {19, at::kFloat8_e5m2, 57344, 61440},
                                       {20, at::kFloat8_e5m2fnuz, 57344, 61440}};

/// Whole numbers of 4 and 2 bits, which are kept in 8.
struct SmallInteger {
  int64_t data_type;
  int64_t values;
  bool with_sign;
};
constexpr SmallInteger kSmallIntegers[] = {{21, 16, false}, {22, 16, true}, {25, 4, false}, {26, 4, true}};

/// Beyond the largest number: it, where numbers saturate; else infinity where the format has it, or NaN.
Tensor to_small_float(const Tensor& x, const SmallFloat& to, bool saturate) {
  const Tensor floats = at::isReducedFloatingType(x.scalar_type()) || !at::isFloatingType(x.scalar_type())
                            ? x.to(at::kFloat)
                            : x;
  if (saturate) return at::clamp(floats, -to.largest, to.largest).to(to.type);
  if (to.type == at::kFloat8_e5m2) return floats.to(to.type);
  // Halfway to where the next number would be, the even one of both is nearer: the largest, or none.
  const Tensor size = at::abs(floats);
  const Tensor outside = to.type == at::kFloat8_e4m3fn ? at::gt(size, to.beyond) : at::ge(size, to.beyond);
  return at::masked_fill(floats, outside, std::numeric_limits<double>::quiet_NaN()).to(to.type);
}

/// The lowest bits of the whole part.
Tensor to_small_integer(const Tensor& x, const SmallInteger& to) {
  const int64_t half = to.with_sign ? to.values / 2 : 0;
  const Tensor moved = at::add(x.to(at::kLong), half);
  return at::sub(at::remainder(moved, to.values), half).to(to.with_sign ? at::kChar : at::kByte);
}

Tensor cast_to(const Call& call, const Tensor& x, int64_t to) {
  const bool saturate = call.attribute("saturate", int64_t{1}) != 0;
  const auto eight = std::ranges::find(kSmallFloats, to, &SmallFloat::data_type);
  if (eight != std::end(kSmallFloats)) {
    return x.scalar_type() == eight->type ? x : to_small_float(x, *eight, saturate);
  }
  const auto few = std::ranges::find(kSmallIntegers, to, &SmallInteger::data_type);
  if (few != std::end(kSmallIntegers)) return to_small_integer(x, *few);
  const at::ScalarType type = scalar_type(to, call.node().label());
  return x.scalar_type() == type ? x : x.to(type);
}

void cast(Call& call) {
  call.set(cast_to(call, call.x(0), call.attribute("to", int64_t{0})));
}

/// The type that the file gives a value, where that is another one than its tensor's: of 4 and 2 bits, 0 for
/// others.
int64_t small_type_of(const Call& call, const std::string& value) {
  const Store& store = call.run().store();
  int64_t type = store.type_of(value);
  for (const FileValue& input : store.model().graph.inputs) type = input.name == value ? input.type : type;
  if (const FileNode* maker = call.analysis().maker(value); maker != nullptr && maker->op == "Cast")
    type = Call(call.run(), *maker, Call::As::known).attribute("to", int64_t{0});
  return std::ranges::find(kSmallIntegers, type, &SmallInteger::data_type) == std::end(kSmallIntegers) ? 0
                                                                                                       : type;
}

void cast_like(Call& call) {
  if (const int64_t small = small_type_of(call, call.name(1)); small != 0)
    return call.set(cast_to(call, call.x(0), small));
  const at::ScalarType type = call.x(1).scalar_type();
  const auto eight = std::ranges::find(kSmallFloats, type, &SmallFloat::type);
  call.set(cast_to(call, call.x(0), eight == std::end(kSmallFloats) ? data_type(type) : eight->data_type));
}

}  // namespace

bool is_of_few_bits(const Call& call, const std::string& value) {
  return small_type_of(call, value) != 0;
}

at::ScalarType input_type(int64_t type, const std::string& where) {
  const auto eight = std::ranges::find(kSmallFloats, type, &SmallFloat::data_type);
  if (eight != std::end(kSmallFloats)) return eight->type;
  const auto few = std::ranges::find(kSmallIntegers, type, &SmallInteger::data_type);
  if (few != std::end(kSmallIntegers)) return few->with_sign ? at::kChar : at::kByte;
  return scalar_type(type, where);
}

ConverterTable cast_table() {
  static constexpr Converter kTable[] = {{"Cast", cast, first_input}, {"CastLike", cast_like, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
