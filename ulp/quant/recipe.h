// What to quantize and how: a plain options struct with defaults, validation and versioned JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/quant/scheme.h"

namespace ulp::quant {

/// How the bounds of what is represented are found; see observer.h, histogram_observer.h and
/// calibration_observer.h.
enum class ObserverKind : uint8_t {
  min_max,
  moving_average,
  histogram,   ///< PyTorch's search; per tensor only
  percentile,  ///< cuts the rarest values on both sides
  entropy,     ///< least Kullback-Leibler divergence
  mse,         ///< least mean squared error
  fixed        ///< given bounds
};

/// How one kind of tensor is quantized.
struct ULP_API TensorRecipe {
  Scheme scheme;
  ObserverKind observer = ObserverKind::min_max;
  double averaging_constant = 0.01;         ///< of moving_average, in (0, 1]
  double percentile = 99.99;                ///< of percentile, in (0, 100]: how much of the values is kept
  double fixed_min = 0.0, fixed_max = 0.0;  ///< of fixed; fixed_min must be the smaller one
  /// Throws ulp::Error naming `what` and the field.
  void validate(const char* what) const;
  bool operator==(const TensorRecipe&) const = default;
};

/// Which ops of a model are quantized, and how their tensors are.
struct ULP_API Recipe {
  TensorRecipe activation;                ///< per tensor
  TensorRecipe weight;                    ///< per channel of axis 0, or per tensor; observed once, at convert
  std::vector<std::string> ops;           ///< ops to quantize: of "conv2d", "linear", "add"
  std::vector<std::string> skip_modules;  ///< module paths left in float; '*' matches any run of characters

  /// Activations u8 affine per tensor by histogram; weights s8 symmetric per output channel by min-max, in
  /// the restricted range [-127, 127]: the full range would make s = max / 127.5 and put a bias into every
  /// sum.
  static Recipe x86_int8();

  /// Throws ulp::Error naming the field.
  void validate() const;
  /// True if a skip pattern matches this module path or a parent of it.
  bool skips(const std::string& module) const;

  /// {"type": "ulp.quant.Recipe", "version": 2, ...}.
  std::string to_json() const;
  /// Reads this version and older ones; fields that are missing keep the values of x86_int8(). Throws
  /// FileError for text that is no such JSON, an unknown field, a value of another kind, or a newer version.
  static Recipe from_json(const std::string& text);
  bool operator==(const Recipe&) const = default;
};

/// True if the pattern matches the module's path or that of a parent; '*' matches any run of characters.
ULP_API bool matches_module(const std::string& pattern, const std::string& module);

/// 2: observers by percentile, entropy, mse and fixed bounds with their parameters; groups, tokens and
/// blocks.
inline constexpr int kRecipeVersion = 2;

}  // namespace ulp::quant
