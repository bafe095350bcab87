#include "ulp/exchange/onnx_import/element_type.h"

#include <algorithm>
#include <iterator>

#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

namespace {

constexpr NumberKind kFewBits = NumberKind::few_bits, kSmallFloat = NumberKind::small_float,
                     kPlainNumber = NumberKind::plain;

constexpr ElementType kElementTypes[] = {
    {0, "undefined"},
    {1, "float", at::kFloat},
    {2, "uint8", at::kByte, kPlainNumber, 0, 0, 255},
    {3, "int8", at::kChar, kPlainNumber, 0, -128, 127},
    {4, "uint16", at::kUInt16, kPlainNumber, 0, 0, 65535},
    {5, "int16", at::kShort, kPlainNumber, 0, -32768, 32767},
    {6, "int32", at::kInt},
    {7, "int64", at::kLong},
    {8, "string"},
    {9, "bool", at::kBool},
    {10, "float16", at::kHalf},
    {11, "double", at::kDouble},
    {12, "uint32", at::kUInt32},
    {13, "uint64", at::kUInt64},
    {14, "complex64"},
    {15, "complex128"},
    {16, "bfloat16", at::kBFloat16},
    {17, "float8e4m3fn", at::kFloat8_e4m3fn, kSmallFloat, 0, 0, 0, 448, 464},
    {18, "float8e4m3fnuz", at::kFloat8_e4m3fnuz, kSmallFloat, 0, 0, 0, 240, 248},
    {19, "float8e5m2", at::kFloat8_e5m2, kSmallFloat, 0, 0, 0, 57344, 61440},
    {20, "float8e5m2fnuz", at::kFloat8_e5m2fnuz, kSmallFloat, 0, 0, 0, 57344, 61440},
    {21, "uint4", at::kByte, kFewBits, 4, 0, 15},
    {22, "int4", at::kChar, kFewBits, 4, -8, 7},
    {23, "float4e2m1", at::kFloat, kSmallFloat, 4, 0, 0, 6, 7},
    {24, "float8e8m0"},
    {25, "uint2", at::kByte, kFewBits, 2, 0, 3},
    {26, "int2", at::kChar, kFewBits, 2, -2, 1},
    {27, "float6e2m3"},
    {28, "float6e3m2"},
};

}  // namespace

std::span<const ElementType> element_types() {
  return kElementTypes;
}

const ElementType* find_element_type(int64_t data_type) {
  return data_type >= 0 && data_type < std::ssize(kElementTypes) ? &kElementTypes[data_type] : nullptr;
}

int64_t data_type(at::ScalarType type) {
  const auto row = std::ranges::find_if(
      kElementTypes, [&](const ElementType& one) { return one.held == type && one.bits == 0; });
  return row == std::end(kElementTypes) ? 0 : row->data_type;
}

std::string type_name(int64_t type) {
  const ElementType* row = find_element_type(type);
  return row == nullptr ? "ONNX's type " + std::to_string(type) : row->name;
}

}  // namespace ulp::exchange::onnx_import
