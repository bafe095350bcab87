// Recipes of fp8 training: how the products of linear layers and convolutions are made of 8-bit (and 4-bit)
// numbers, and which layers compute so.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::amp {

/// Where the scales come from, and how many values share one.
enum class Fp8Scaling : uint8_t {
  delayed,  ///< one a tensor, from the largest magnitudes of earlier steps (Transformer Engine's first recipe)
  current,  ///< one a tensor, from the tensor itself
  rowwise,  ///< one a row of each operand, powers of two (torchao's "rowwise")
  block,  ///< one for 1x128 values of inputs and gradients and for 128x128 of weights, powers of two (DeepSeek-V3)
  mxfp8,  ///< one for 32 values, powers of two in 8 bits (OCP Microscaling)
  nvfp4   ///< 4-bit values: an e4m3 scale for 16 of them (weights 16x16) and an fp32 scale a tensor
};
/// The numbers of delayed and current scaling. The others have e4m3 for all, or fp4.
enum class Fp8Format : uint8_t {
  hybrid,  ///< e4m3 for inputs and weights, e5m2 for gradients
  e4m3     ///< e4m3 for all
};
/// Which of the recorded magnitudes a delayed scale follows.
enum class AmaxAlgorithm : uint8_t { max, most_recent };
/// How the exponent of an MX scale is rounded.
enum class MxRounding : uint8_t {
  up,    ///< of amax / 448, so that nothing saturates (Transformer Engine; torchao's RCEIL)
  floor  ///< floor(log2 amax) - 8 (OCP; torchao's FLOOR)
};

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::Fp8Scaling> {
  using enum amp::Fp8Scaling;
  static constexpr std::array<Word<amp::Fp8Scaling>, 6> list = {
      {{delayed, "delayed", "one scale a tensor, from earlier steps"},
       {current, "current", "one scale a tensor, from the tensor itself"},
       {rowwise, "rowwise", "one scale a row"},
       {block, "block", "one scale for 1x128 values, of weights for 128x128"},
       {mxfp8, "mxfp8", "one scale for 32 values"},
       {nvfp4, "nvfp4", "4-bit values, one scale for 16 and one a tensor"}}};
};
template <>
struct ulp::EnumNames<ulp::amp::Fp8Format> {
  using enum amp::Fp8Format;
  static constexpr std::array<Word<amp::Fp8Format>, 2> list = {
      {{hybrid, "hybrid", "e4m3, gradients e5m2"}, {e4m3, "e4m3", "e4m3 for all"}}};
};
template <>
struct ulp::EnumNames<ulp::amp::AmaxAlgorithm> {
  using enum amp::AmaxAlgorithm;
  static constexpr std::array<Word<amp::AmaxAlgorithm>, 2> list = {
      {{max, "max", "the largest of the history"}, {most_recent, "most_recent", "the last step's"}}};
};
template <>
struct ulp::EnumNames<ulp::amp::MxRounding> {
  using enum amp::MxRounding;
  static constexpr std::array<Word<amp::MxRounding>, 2> list = {
      {{up, "up", "nothing saturates"}, {floor, "floor", "as the OCP specification"}}};
};

namespace ulp::amp {

/// How one layer computes.
struct ULP_API Fp8LayerRecipe {
  Fp8Scaling scaling = Fp8Scaling::delayed;
  Fp8Format format = Fp8Format::hybrid;     ///< of delayed and current
  int64_t history = 1024;                   ///< delayed: steps whose magnitudes are kept
  double margin = 0;                        ///< delayed: scales are 2^-margin of what would fit
  AmaxAlgorithm amax = AmaxAlgorithm::max;  ///< delayed
  bool power_of_2 = false;                  ///< current: scales are rounded down to powers of two
  MxRounding mx_rounding = MxRounding::up;  ///< mxfp8
  bool hadamard = true;    ///< nvfp4: mix 16 neighbours before the product for the weight's gradient
  bool stochastic = true;  ///< nvfp4: round gradients at random

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// One line of JSON with the fields that are not default values, as the ops take it; from_text() reads it, and
  /// throws ulp::Error for anything else.
  std::string text() const;
  static Fp8LayerRecipe from_text(const std::string& text);
  bool operator==(const Fp8LayerRecipe&) const = default;
};

/// Another recipe for the layers of some modules.
struct ULP_API Fp8Override {
  std::string module;  ///< path of a module; '*' is any run of characters; a module's children are meant, too
  Fp8LayerRecipe layers = {};
  void visit_fields(FieldVisitor& visit);
  bool operator==(const Fp8Override&) const = default;
};

/// How the layers of a model compute, and which of them.
struct ULP_API Fp8Recipe {
  static constexpr const char* kType = "ulp.amp.Fp8Recipe";

  Fp8LayerRecipe layers = {};
  bool first = false;                          ///< the first layer of the network, too
  bool last = false;                           ///< the last one, too
  std::vector<std::string> skip_modules = {};  ///< module paths that are left as they are; '*' as above
  std::vector<Fp8Override> overrides = {};     ///< the last one that matches wins

  /// The recipe of a precision's name: "fp8:delayed", "fp8:current", "fp8:rowwise", "fp8:block", "mxfp8", "nvfp4".
  /// Throws ulp::Error that lists them.
  static Fp8Recipe named(std::string_view name);
  /// How the layers of the module at this path compute.
  const Fp8LayerRecipe& layers_of(const std::string& module) const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.amp.Fp8Recipe", "version": 1, ...}.
  std::string to_json() const;
  /// Fields that are missing keep their defaults. Throws FileError for text that is no such JSON, an unknown field, a
  /// value of another kind, or a newer version.
  static Fp8Recipe from_json(const std::string& text);
  bool operator==(const Fp8Recipe&) const = default;
};

}  // namespace ulp::amp
