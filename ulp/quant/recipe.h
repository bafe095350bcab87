// The recipe of quantization: a plain options struct with defaults, validation and versioned JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/quant/methods/static_methods.h"
#include "ulp/quant/observers/observer_kind.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// How one kind of tensor is quantized.
struct ULP_API TensorRecipe {
  Scheme scheme;
  ObserverKind observer = ObserverKind::min_max;
  double averaging_constant = 0.01;         ///< of moving_average, in (0, 1]
  double percentile = 99.99;                ///< of percentile, in (0, 100]: how much of the values is kept
  double fixed_min = 0.0, fixed_max = 0.0;  ///< of fixed; fixed_min must be the smaller one
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming `what` and the field.
  void validate(const char* what) const;
  bool operator==(const TensorRecipe&) const = default;
};

/// The target that runs the integers, which limits what a recipe may ask for; see backend.h.
enum class Backend : uint8_t { x86_int8, arm_int8, tflite_int8, onnx_qdq, weight_only, binary };

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::Backend> {
  static constexpr std::array<Word<quant::Backend>, 6> list = {{{quant::Backend::x86_int8, "x86_int8"},
                                                                {quant::Backend::arm_int8, "arm_int8"},
                                                                {quant::Backend::tflite_int8, "tflite_int8"},
                                                                {quant::Backend::onnx_qdq, "onnx_qdq"},
                                                                {quant::Backend::weight_only, "weight_only"},
                                                                {quant::Backend::binary, "binary"}}};
};

namespace ulp::quant {

/// "x86_int8".
ULP_API const char* to_string(Backend backend);

/// An op of a graph as a recipe names it.
struct OpName {
  std::string op;      ///< "conv2d"; "input" for an input of the model
  std::string module;  ///< path of the module that calls it; may be empty
  std::string value;   ///< its result in the graph's listing
};

/// An exception from the defaults, for the ops that every given pattern matches ('*' is any run of
/// characters).
struct ULP_API Override {
  std::string op, module, value;           ///< empty: any; a module's children are meant, too
  std::optional<TensorRecipe> activation;  ///< of the op's result, an activation fused behind it included
  std::optional<TensorRecipe> weight;      ///< of a layer
  bool matches(const OpName& name) const;
  void visit_fields(FieldVisitor& visit);
  bool operator==(const Override&) const = default;
};

/// Which ops of a model are quantized, and how their tensors are.
struct ULP_API Recipe {
  static constexpr const char* kType = "ulp.quant.Recipe";

  Backend backend = Backend::x86_int8;
  TensorRecipe activation;  ///< per tensor
  TensorRecipe weight;      ///< per channel of axis 0, or per tensor; observed once, at convert
  /// The ops that are quantized, of static_ops(): "conv2d", and for attention "scaled_dot_product_attention".
  std::vector<std::string> ops;
  std::vector<std::string> skip_modules;  ///< module paths left in float; '*' matches any run of characters
  std::vector<std::string> skip_values;   ///< ops left in float, by the value they compute in the listing
  std::vector<Override> overrides;        ///< by op first, then by module, then by value; later ones win
  StaticMethods methods;  ///< that quantize() runs with calibration data; prepare() refuses them

  /// Activations u8 affine per tensor by histogram; weights s8 symmetric per output channel by min-max, in
  /// the restricted range [-127, 127]: the full range would make s = max / 127.5 and put a bias into every
  /// sum.
  static Recipe x86_int8();
  /// As x86_int8; weights must be in [-127, 127], as kernels that add pairs of products in 16 bits need it.
  static Recipe arm_int8();
  /// TensorFlow Lite's published 8-bit specification: activations s8 affine by min-max, weights s8 in [-127,
  /// 127] with zero point 0, per channel; softmax and sigmoid end at (1/256, -128), tanh at (1/128, 0).
  static Recipe tflite_int8();
  /// The profile of ONNX's QuantizeLinear and DequantizeLinear: 8 bits, full ranges.
  static Recipe onnx_qdq();
  /// Weights of linear layers and embeddings alone, s4 symmetric in groups of 32; also u4 affine per group,
  /// or s8 symmetric restricted per channel 0. For quantize_weights(); prepare() refuses it.
  static Recipe weight_only();
  /// Layers on signs, for prepare_qat(); QatOptions::binary says which layers and how. What is not binary stays in
  /// float: `ops` is empty, and names those of the rest to be quantized as x86_int8() does. An override that gives a
  /// layer's weight another form keeps it from becoming binary.
  static Recipe binary();
  /// One of these by its backend's name. Throws ulp::Error that lists the known names.
  static Recipe profile(const std::string& name);

  /// How the result of this op is quantized, overrides considered.
  const TensorRecipe& activation_of(const OpName& name) const;
  /// The recipe of this layer's weight.
  const TensorRecipe& weight_of(const OpName& name) const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// True if a skip pattern matches this module path or a parent of it.
  bool skips(const std::string& module) const;
  /// True if a skip pattern matches the op's module or its value.
  bool skips(const OpName& name) const;

  /// {"type": "ulp.quant.Recipe", "version": 5, ...}.
  std::string to_json() const;
  /// Reads this version and older ones; fields that are missing keep the values of x86_int8(). Throws
  /// FileError for text that is no such JSON, an unknown field, a value of another kind, or a newer version.
  static Recipe from_json(const std::string& text);
  bool operator==(const Recipe&) const = default;
};

/// The ops that Recipe::ops may name.
ULP_API std::span<const char* const> static_ops();

/// The names that Recipe::profile() knows.
ULP_API std::vector<std::string> recipe_profiles();

/// True if the pattern matches the module's path or that of a parent; '*' matches any run of characters.
ULP_API bool matches_module(const std::string& pattern, const std::string& module);

/// 2: observers by percentile, entropy, mse and fixed bounds with their parameters; groups, tokens and
/// blocks. 3: backends, overrides, skip_values. 4: the backend binary. 5: methods.
inline constexpr int kRecipeVersion = 5;

}  // namespace ulp::quant
