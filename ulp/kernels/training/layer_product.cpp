#include "ulp/kernels/training/layer_product.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const LayerProductOps*> kLayerProductTables[] = {
    {Isa::avx512, ULP_ON_X86(&kLayerProductOpsAvx512)},
    {Isa::avx2, ULP_ON_X86(&kLayerProductOpsAvx2)},
    {Isa::portable, &kLayerProductOpsPortable}};

}  // namespace

const LayerProductOps& layer_product_ops(Isa isa) {
  return *first_admitted(kLayerProductTables, isa);
}

}  // namespace ulp::kernels
