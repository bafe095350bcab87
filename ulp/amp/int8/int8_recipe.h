// How the layers of int8 training compute.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::amp {

/// Which numbers share a scale, and which products are in int8.
enum class Int8Method : uint8_t {
  switchback,  ///< rows of inputs and gradients, one scale for the weight, whose gradient is not in int8
  ///< (Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models")
  rowwise,  ///< all three products, each operand by its rows (torchao's int8_mixed_precision_training)
  jetfire   ///< all three products in blocks of 32 x 32 (Xi et al. 2024, "Jetfire")
};

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::Int8Method> {
  using enum amp::Int8Method;
  static constexpr std::array<Word<amp::Int8Method>, 3> list = {
      {{switchback, "switchback", "rows and one scale for weights, their gradients in 16 bits"},
       {rowwise, "rowwise", "all three products by rows"},
       {jetfire, "jetfire", "all three products in blocks of 32 x 32"}}};
};

namespace ulp::amp {

/// How one layer computes.
struct ULP_API Int8LayerRecipe {
  Int8Method method = Int8Method::switchback;
  bool output = true;       ///< rowwise: the product of the forward pass is in int8
  bool grad_input = true;   ///< rowwise: that of the input's gradient
  bool grad_weight = true;  ///< rowwise: that of the weight's gradient
  bool stochastic = false;  ///< gradients are rounded at random, by the default CPU generator

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  bool operator==(const Int8LayerRecipe&) const = default;
};

/// How the linear layers of a model compute, and which of them.
struct ULP_API Int8Recipe {
  static constexpr const char* kType = "ulp.amp.Int8Recipe";

  Int8LayerRecipe layers = {};
  bool first = false;                          ///< the first layer of the network, too
  bool last = false;                           ///< the last one, too
  std::vector<std::string> skip_modules = {};  ///< module paths that are left as they are; '*' is any run of
                                               ///< characters

  /// The recipe of a precision's name: "int8:switchback", "int8:rowwise", "int8:jetfire"; "int8" is rowwise.
  /// Throws ulp::Error that lists them.
  static Int8Recipe named(std::string_view name);

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.amp.Int8Recipe", "version": 1, ...}.
  std::string to_json() const;
  /// Fields that are missing keep their defaults. Throws FileError for text that is no such JSON, an unknown
  /// field, a value of another kind, or a newer version.
  static Int8Recipe from_json(const std::string& text);
  bool operator==(const Int8Recipe&) const = default;
};

}  // namespace ulp::amp
