// The methods that decide the codes of weights stored small.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/enum_names.h"

namespace ulp::quant {

/// The method that decides which code a weight of a linear layer gets.
enum class WeightMethod : uint8_t {
  rtn,   ///< round to nearest: the scale of the group's own range
  gptq,  ///< errors of a column are made up for by the columns behind it (Frantar et al. 2022)
  awq,   ///< inputs' channels are scaled by what they hold, then ranges are clipped (Lin et al. 2023)
  hqq    ///< zero points or scales of a small l_p norm of the error (Badri and Shaji 2023), see hqq.h
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::WeightMethod> {
  static constexpr std::array<Word<quant::WeightMethod>, 4> list = {
      {{quant::WeightMethod::rtn, "rtn", "round to nearest, without data"},
       {quant::WeightMethod::gptq, "gptq", "columns make up for the errors of those before them"},
       {quant::WeightMethod::awq, "awq", "channels are scaled by their activations, ranges clipped"},
       {quant::WeightMethod::hqq, "hqq", "zero points of the least l_0.7 error, without data"}}};
};

namespace ulp::quant {

/// Whether the method looks at calibration data.
constexpr bool needs_data(WeightMethod method) {
  return method == WeightMethod::gptq || method == WeightMethod::awq;
}

}  // namespace ulp::quant
