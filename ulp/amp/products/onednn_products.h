// Products of float32 matrices by oneDNN, for processors on which LibTorch's BLAS is slower than it.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"

namespace ulp::amp {

/// True where oneDNN multiplies float32 matrices about twice as fast as LibTorch does by itself: LibTorch calls MKL, which
/// takes its code for AVX2 on processors of AMD, and the processor's units are 512 bits wide (family 1Ah, Zen 5). The
/// answer depends on the processor and on this LibTorch alone, so a run that is resumed computes as before.
ULP_API bool onednn_products_pay();

/// While an object lives, LibTorch computes aten::mm and aten::addmm by oneDNN, in the whole process, eagerly
/// and under autograd: layers' products and both of their backward products. Taken are float32 matrices on
/// the CPU, m x k times k x n, with k >= 2 and 2 m k n >= 8 million or m n >= 262,144; of aten::addmm those
/// with beta and alpha 1 and a bias of n values. All others are computed as before, and so is every product
/// while oneDNN is switched off (at::Context::setUserEnabledMkldnn). Sums are float32 in another order, so
/// results differ in their last bits.
///
/// Make and destroy it while no other thread computes: LibTorch's table of kernels is changed. Objects may be
/// nested; the last one to go restores LibTorch's kernels.
class ULP_API OneDnnProducts {
 public:
  /// Throws ulp::Error where this LibTorch has no oneDNN, or not the operator for such products
  /// (mkldnn::_linear_pointwise).
  OneDnnProducts();
  ~OneDnnProducts();
  OneDnnProducts(const OneDnnProducts&) = delete;
  OneDnnProducts& operator=(const OneDnnProducts&) = delete;

  /// How many products of the process oneDNN has computed by this way.
  static int64_t count();
};

/// For programs that train: where onednn_products_pay(), OneDnnProducts from here to the end of the process. Call it once, at
/// the begin of main(); later calls do nothing.
ULP_API void prepare_training_products();

}  // namespace ulp::amp
