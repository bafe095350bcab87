// Products of quantized matrices, and the accelerator's where it has them and they pay; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ulp/amp/fp8/fp8_products.h"
#include "ulp/amp/fp8/fp8_tensor.h"

namespace ulp::amp {

/// Whose product it is.
struct Fp8ProductOf {
  const std::string& layer;
  Fp8ProductRole role;
};

/// a [m, k] times the transpose of b [n, k], f32 [m, n]: codes' numbers are multiplied and summed in f32, and the sums
/// multiplied by the scales; scales of blocks along k are multiplied into the numbers before. By at::_scaled_mm where the
/// device has it for these formats and sizes and it was the faster of both ways.
at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation,
                       const Fp8ProductOf& of);

/// The same by the numbers of the codes.
ULP_API at::Tensor emulated_product(const Fp8Tensor& a, const Fp8Tensor& b);

/// True if at::_scaled_mm takes these formats and sizes.
ULP_API bool takes_scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b);
/// How many columns of both share their scales: 0 with one scale each, all with scales of rows, else those of
/// a block.
ULP_API int64_t columns_of_scales(const Fp8Tensor& a, const Fp8Tensor& b);
/// Multiplies by at::_scaled_mm: one product, or one of each block of columns whose sums are then scaled and
/// added in f32.
ULP_API at::Tensor scaled_mm(const Fp8Tensor& a, const Fp8Tensor& b, bool fast_accumulation);

/// Measures both ways where sizes and formats are met for the first time on a device, and remembers. May be used by several
/// threads.
class ULP_API Fp8ProductChooser {
 public:
  /// Seconds that a call takes, with all that it started on the device.
  using Timer = std::function<double(const std::function<void()>& call)>;

  /// True if the native way is to be taken.
  bool native(const Fp8Tensor& a, const Fp8Tensor& b, const Fp8ProductOf& of,
              const std::function<void()>& native, const std::function<void()>& emulated,
              const Timer& seconds);
  std::vector<Fp8ProductChoice> choices() const;

 private:
  struct Measured {
    double native, emulated;
  };
  using Sizes = std::tuple<int64_t, int64_t, int64_t, const void*, const void*, int64_t, int>;
  using Layer = std::tuple<std::string, Fp8ProductRole, Sizes>;

  mutable std::mutex lock_;
  std::map<Sizes, Measured> measured_;
  std::map<Layer, size_t> places_;
  std::vector<Fp8ProductChoice> choices_;
};

}  // namespace ulp::amp
