// Methods of static quantization beyond plain ranges and plain rounding: which ones, and their settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::quant {

/// A method acts on a network before or after its weights are quantized. They run in this order.
enum class StaticMethod : uint8_t {
  rotate,          ///< the residual stream is rotated (Ashkboos et al. 2024), see rotate_residual.h
  cle,             ///< cross-layer equalization (Nagel et al. 2019)
  smoothquant,     ///< channels of activations are scaled down, those of weights up (Xiao et al. 2022)
  adaround,        ///< rounding up or down is learned (Nagel et al. 2020)
  bias_correction  ///< biases take the mean error of their layer (Nagel et al. 2019)
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::StaticMethod> {
  static constexpr std::array<Word<quant::StaticMethod>, 5> list = {
      {{quant::StaticMethod::rotate, "rotate", "the residual stream is rotated"},
       {quant::StaticMethod::cle, "cle", "ranges of neighbouring layers' channels are made equal"},
       {quant::StaticMethod::smoothquant, "smoothquant", "norms take the size of large channels"},
       {quant::StaticMethod::adaround, "adaround", "rounding up or down is learned"},
       {quant::StaticMethod::bias_correction, "bias_correction", "biases take the mean error"}}};
};

namespace ulp::quant {

/// The share of SmoothQuant: a number in [0, 1], or "auto".
struct ULP_API SmoothAlpha {
  static constexpr const char* kExpected = "a number in [0, 1] or auto";

  double value = 0.5;
  bool searched =
      false;  ///< the best of 0, 0.1, ..., 1 for each input of layers, or none; `value` says nothing

  /// "0.5", "auto".
  std::string text() const;
  static std::optional<SmoothAlpha> from_text(const std::string& text);
  bool operator==(const SmoothAlpha&) const = default;
};

/// The part of a static recipe about methods.
struct ULP_API StaticMethods {
  /// Words of StaticMethod, each once; the order says nothing.
  std::vector<std::string> method = {};
  SmoothAlpha smoothquant_alpha = {};
  /// cle: a relu6 between two layers becomes a relu, which changes the float network where it clamps at 6.
  /// Else such layers are left out.
  bool replace_relu6 = false;
  int64_t adaround_iterations = 2000;  ///< of Adam, on all data at once
  /// adaround, bias_correction: inputs of layers are computed from the start: less memory, more time.
  bool recompute = false;

  bool any() const { return !method.empty(); }
  bool has(StaticMethod one) const;
  /// Those that are left once channels are scaled (scale_channels.h).
  StaticMethods behind_scaling() const;
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field: for other words, one twice, and settings of a method that is not
  /// chosen.
  void validate(const char* where) const;
  bool operator==(const StaticMethods&) const = default;
};

}  // namespace ulp::quant
