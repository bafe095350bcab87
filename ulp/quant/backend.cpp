#include "ulp/quant/backend.h"

#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {
namespace {

std::string refusal(Backend backend, const char* takes, const Scheme& scheme) {
  return std::string(to_string(backend)) + " takes " + takes + ", got " + scheme.to_string();
}

/// The parameters that TensorFlow Lite's specification gives results of this op; scale 0 for any.
ScaleZero fixed_by_tflite(const std::string& op) {
  if (op == "softmax" || op == "sigmoid") return {1.0F / 256, -128};
  if (op == "tanh") return {1.0F / 128, 0};
  return {0, 0};
}

}  // namespace

std::string activation_obstacle(Backend backend, const OpName& op, const TensorRecipe& recipe) {
  const Scheme& scheme = recipe.scheme;
  if (backend == Backend::x86_int8 || backend == Backend::binary) return "";
  if (backend == Backend::weight_only) return "weight_only leaves activations in float";
  if (scheme.bits != 8 || scheme.range != Range::full)
    return refusal(backend, "activations of 8 bits in their full range", scheme);
  if (backend != Backend::tflite_int8) return "";
  if (!scheme.is_signed || scheme.mapping != Mapping::affine)
    return refusal(backend, "activations s8 affine", scheme);
  const ScaleZero wanted = fixed_by_tflite(op.op);
  if (wanted.scale == 0) return "";
  const bool fixed = recipe.observer == ObserverKind::fixed;
  const ScaleZero got = fixed ? choose_scale_zero(static_cast<float>(recipe.fixed_min),
                                                  static_cast<float>(recipe.fixed_max), scheme)
                              : ScaleZero{};
  if (fixed && got.scale == wanted.scale && got.zero_point == wanted.zero_point) return "";
  return "tflite_int8 fixes the result of " + op.op + " at scale 1/" +
         std::to_string(static_cast<int>(1 / wanted.scale)) + " and zero point " +
         std::to_string(wanted.zero_point) + ", which the recipe does not";
}

bool sums_in_layers(Backend backend) {
  return backend != Backend::onnx_qdq && backend != Backend::tflite_int8;
}

bool fuses_activations(Backend backend) {
  return backend != Backend::tflite_int8;
}

bool ends_in_integers(Backend backend) {
  return backend == Backend::tflite_int8;
}

bool requantizes_averages(Backend backend) {
  return backend != Backend::tflite_int8;
}

std::string weight_obstacle(Backend backend, const TensorRecipe& recipe) {
  const Scheme& scheme = recipe.scheme;
  if (backend == Backend::x86_int8 || backend == Backend::binary) return "";
  // Codes of 7 bits lie in s8: sums of two products with them do not saturate in 16 bits, as processors without VNNI add them.
  const bool seven = backend == Backend::onnx_qdq && scheme.bits == 7;
  if (scheme.bits != 8 && !seven)
    return refusal(backend, backend == Backend::onnx_qdq ? "weights of 7 or 8 bits" : "weights of 8 bits",
                   scheme);
  const bool restricted = backend == Backend::arm_int8 || backend == Backend::tflite_int8;
  if (restricted && scheme.range != Range::restricted)
    return refusal(backend, "weights in [-127, 127]", scheme);
  return "";
}

}  // namespace ulp::quant
