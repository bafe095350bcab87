#include "ulp/exchange/pt2/arguments_out.h"

#include <ATen/core/jit_type.h>

#include <cmath>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/pt2/stored_tensors.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;
using c10::TypeKind;
using graph::Node;

/// NaN and infinities are words.
Json real_json(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

int64_t memory_format_number(const Node& node, int64_t format) {
  switch (static_cast<at::MemoryFormat>(format)) {
    case at::MemoryFormat::Contiguous:
      return 1;
    case at::MemoryFormat::ChannelsLast:
      return 2;
    case at::MemoryFormat::ChannelsLast3d:
      return 3;
    case at::MemoryFormat::Preserve:
      return 4;
    default:
      refuse(node, "its memory format has no number in archives");
  }
}

Json whole_json(const Node& node, int64_t number, const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::ScalarTypeType: {
      const int64_t known = type_number(static_cast<at::ScalarType>(number));
      if (known == 0) refuse(node, "it makes numbers of a type that ulp does not write");
      return {{"as_scalar_type", known}};
    }
    case TypeKind::LayoutType:
      if (static_cast<at::Layout>(number) != at::kStrided)
        refuse(node, "it makes tensors that are not dense");
      return {{"as_layout", kDense}};
    case TypeKind::MemoryFormatType:
      return {{"as_memory_format", memory_format_number(node, number)}};
    case TypeKind::FloatType:
      return {{"as_float", static_cast<double>(number)}};
    default:
      return {{"as_int", number}};
  }
}

template <typename List, typename Make>
Json numbers_json(const char* kind, const List& list, const Make& make) {
  Json numbers = Json::array();
  for (const auto& one : list) numbers.push_back(make(one));
  return {{kind, numbers}};
}

Json literal_list(const Node& node, const IValue& value, const c10::Type& type) {
  const auto same = [](const auto& one) -> Json { return one; };
  if (value.isIntList()) return numbers_json("as_ints", value.toIntVector(), same);
  if (value.isDoubleList()) return numbers_json("as_floats", value.toDoubleVector(), real_json);
  if (value.isBoolList()) {
    const auto flag = [](const auto& one) -> Json { return static_cast<bool>(one); };
    return numbers_json("as_bools", value.toBoolList(), flag);
  }
  if (value.toListRef().empty()) return {{"as_ints", Json::array()}};
  refuse(node, "an argument is a ", type.str());
}

}  // namespace

bool is_optional_tensor(const c10::Type& type) {
  return type.kind() == TypeKind::OptionalType && type.containedType(0)->kind() == TypeKind::TensorType;
}

Json literal_json(const Node& node, const IValue& value, const c10::Type& type) {
  if (value.isNone()) return {{"as_none", true}};
  if (value.isBool()) return {{"as_bool", value.toBool()}};
  if (value.isInt()) return whole_json(node, value.toInt(), type);
  if (value.isDouble()) return {{"as_float", real_json(value.toDouble())}};
  if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    return {{"as_complex", {{"real", real_json(number.real())}, {"imag", real_json(number.imag())}}}};
  }
  if (value.isString()) return {{"as_string", value.toStringRef()}};
  if (value.isDevice()) return {{"as_device", {{"type", "cpu"}, {"index", nullptr}}}};
  if (value.isList()) return literal_list(node, value, type);
  refuse(node, "an argument is a ", type.str());
}

}  // namespace ulp::exchange::pt2
