// Who is told of each tensor that fp8 layers quantize, while somebody wants to know.
#pragma once

#include <string>

#include "ulp/amp/fp8/fp8_tensor.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// Gets the tensors of all threads, one after the other.
class ULP_API Fp8Sink {
 public:
  virtual ~Fp8Sink() = default;
  /// `layer` quantized `source`.
  virtual void quantized(const std::string& layer, Fp8Role role, const at::Tensor& source,
                         const Fp8Tensor& made) = 0;
};

/// Null: nobody. The sink must outlive its use.
ULP_API void set_fp8_sink(Fp8Sink* sink);
/// The one that is set, told under a lock; nothing happens without one.
ULP_API void tell_fp8_sink(const std::string& layer, Fp8Role role, const at::Tensor& source,
                           const Fp8Tensor& made);

}  // namespace ulp::amp
