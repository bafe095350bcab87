// Which way the products of fp8 layers go on a device that multiplies fp8 matrices itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// The three products of a layer.
enum class Fp8ProductRole : uint8_t { forward, input_gradient, weight_gradient };

/// A product of a layer, rows x inner times inner x columns, as it was measured when its sizes were first met.
struct ULP_API Fp8ProductChoice {
  std::string layer;
  Fp8ProductRole role = Fp8ProductRole::forward;
  int64_t rows = 0, inner = 0, columns = 0;
  double native_seconds = 0;    ///< at::_scaled_mm
  double emulated_seconds = 0;  ///< numbers of the codes multiplied in f32
  bool native = false;          ///< the faster one, which is taken from then on
};

/// Lists the choices of this process, in the order in which layers came. Empty where no device has such
/// products: there everything is emulated, and nothing is measured.
ULP_API std::vector<Fp8ProductChoice> fp8_product_choices();

}  // namespace ulp::amp

namespace ulp {
template <>
struct EnumNames<amp::Fp8ProductRole> {
  using enum amp::Fp8ProductRole;
  static constexpr std::array<Word<amp::Fp8ProductRole>, 3> list = {
      {{forward, "forward"}, {input_gradient, "input gradient"}, {weight_gradient, "weight gradient"}}};
};
}  // namespace ulp
