// Element types and quantizers. Plain data only: the files of each instruction set include this and no more.
#pragma once

#include <cstdint>

namespace ulp::kernels {

/// Element type of a buffer that a kernel reads or writes.
enum class Element : uint8_t { f32, bf16, u8, i8, i32 };

/// What follows the accumulation, in this order: bias, residual, activation. gelu: with erf; gelu_tanh: its
/// approximation by tanh.
enum class Activation : uint8_t { none, relu, relu6, gelu, gelu_tanh, tanh };

/// More than a clamp: for f32 results only (curves.h).
constexpr bool is_curve(Activation activation) {
  return activation >= Activation::gelu;
}

/// An affine 8-bit quantizer: real = (q - zero_point) * scale.
struct Affine {
  float scale = 1.0F;
  int32_t zero_point = 0;
};

/// Bytes of one element.
constexpr int64_t element_bytes(Element type) {
  return type == Element::f32 || type == Element::i32 ? 4 : type == Element::bf16 ? 2 : 1;
}

}  // namespace ulp::kernels
