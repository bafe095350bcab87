// The activations that a layer can end in: the one table. Annotation, lowering, engine files and kernels
// read it; an activation is one line here. Plain data: files compiled for one instruction set include it.
#pragma once

#include <cstdint>

// X(name, spelling, kind, low, high, curve):
//   name      the enumerator and the word in engine files
//   spelling  the ATen op, with the literal arguments that tell it from its like; clamps are also known by
//             their bounds (hardtanh, clamp, clamp_min)
//   kind      clamp: min(max(x, low), high) with low <= 0 <= high, for results of every type, codes included;
//             curve: computed in f32, whatever the result's type
//   curve     the value at float x, for scalar code that vectorizes, by the functions of
//             kernels/elementwise/curves.h
// gelu: x Phi(x), by erf; gelu_tanh: its approximation by tanh. hardsigmoid: clamp(x + 3, 0, 6) / 6;
// hardswish: x clamp(x + 3, 0, 6) / 6 (Howard et al. 2019, "Searching for MobileNetV3"), rounded as PyTorch
// does. silu: x sigmoid(x). A NaN passes both comparisons.
#define ULP_ACTIVATIONS(X)                                                                                \
  X(none, "", clamp, -__builtin_inff(), __builtin_inff(), x)                                              \
  X(relu, "aten::relu", clamp, 0.0F, __builtin_inff(), x)                                                 \
  X(relu6, "aten::relu6", clamp, 0.0F, 6.0F, x)                                                           \
  X(gelu, "aten::gelu(approximate=none)", curve, -__builtin_inff(), __builtin_inff(), gelu_activation(x)) \
  X(gelu_tanh, "aten::gelu(approximate=tanh)", curve, -__builtin_inff(), __builtin_inff(),                \
    gelu_tanh_activation(x))                                                                              \
  X(tanh, "aten::tanh", curve, -__builtin_inff(), __builtin_inff(), tanh_activation(x))                   \
  X(hardsigmoid, "aten::hardsigmoid", curve, -__builtin_inff(), __builtin_inff(),                         \
    (x + 3.0F < 0.0F ? 0.0F : (x + 3.0F > 6.0F ? 6.0F : x + 3.0F)) / 6.0F)                                \
  X(hardswish, "aten::hardswish", curve, -__builtin_inff(), __builtin_inff(),                             \
    (x + 3.0F < 0.0F ? 0.0F : (x + 3.0F > 6.0F ? 6.0F : x + 3.0F)) * x / 6.0F)                            \
  X(sigmoid, "aten::sigmoid", curve, -__builtin_inff(), __builtin_inff(), sigmoid_activation(x))          \
  X(silu, "aten::silu", curve, -__builtin_inff(), __builtin_inff(), x* sigmoid_activation(x))

namespace ulp {

#define ULP_ENUMERATOR(name, ...) name,
/// The rows of the table by name.
enum class Activation : uint8_t { ULP_ACTIVATIONS(ULP_ENUMERATOR) };
#undef ULP_ENUMERATOR

/// How an activation is computed; see the table.
enum class ActivationKind : uint8_t { clamp, curve };

/// One line of the table.
struct ActivationInfo {
  const char* name;
  const char* spelling;
  ActivationKind kind;
  float low, high;
};

#define ULP_ROW(name, spelling, kind, low, high, ...) {#name, spelling, ActivationKind::kind, low, high},
/// All rows, in the order of the enumerators.
inline constexpr ActivationInfo kActivations[] = {ULP_ACTIVATIONS(ULP_ROW)};
#undef ULP_ROW
/// How many there are.
inline constexpr int kActivationCount = sizeof(kActivations) / sizeof(kActivations[0]);

/// False for a number that is no enumerator, as a hostile file may hold.
constexpr bool is_known(Activation activation) {
  return static_cast<int>(activation) < kActivationCount;
}
/// The row of a known activation.
constexpr const ActivationInfo& info_of(Activation activation) {
  return kActivations[static_cast<int>(activation)];
}
/// "relu6"; "unknown" for a number that is no enumerator.
constexpr const char* to_string(Activation activation) {
  return is_known(activation) ? info_of(activation).name : "unknown";
}
/// More than a clamp. Reads no table, so that files of one instruction set share no
/// symbol.
constexpr bool is_smooth_activation(Activation activation) {
  switch (activation) {
#define ULP_CASE(name, spelling, kind, ...) \
  case Activation::name:                    \
    return ActivationKind::kind == ActivationKind::curve;
    ULP_ACTIVATIONS(ULP_CASE)
#undef ULP_CASE
  }
  return false;
}

}  // namespace ulp
