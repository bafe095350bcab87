// ONNX's element types: their numbers and names, and how LibTorch holds their elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace ulp::exchange::onnx_import {

/// What kind of numbers a type has, as far as that decides how they are computed.
enum class NumberKind : uint8_t {
  plain,       ///< a type of LibTorch that it computes in
  few_bits,    ///< whole numbers of 4 or 2 bits, which int8 or uint8 holds
  small_float  ///< floats of 8 bits, which LibTorch stores, or of 4, which float holds
};

/// A TensorProto.DataType.
struct ElementType {
  int64_t data_type;
  const char* name;                                 ///< as ONNX calls it
  at::ScalarType held = at::ScalarType::Undefined;  ///< undefined: LibTorch has no such elements
  NumberKind kind = NumberKind::plain;
  int64_t bits = 0;                 ///< of an element in a file, where several share a byte; else 0
  int64_t lowest = 0, highest = 0;  ///< whole numbers of at most 16 bits
  double largest = 0;               ///< small floats
  double halfway = 0;               ///< from `largest` to where the next number would be
};

/// All of them.
std::span<const ElementType> element_types();
/// Null for a number that ONNX has not.
const ElementType* find_element_type(int64_t data_type);

}  // namespace ulp::exchange::onnx_import
