#include "ulp/kernels/training/packed_product.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const PackedProductOps*> kPackedFloats[] = {{Isa::avx512, ULP_ON_X86(&kPackedFloatsAvx512)},
                                                              {Isa::avx2, ULP_ON_X86(&kPackedFloatsAvx2)},
                                                              {Isa::portable, &kPackedFloatsPortable}};
constexpr Variant<const PackedProductOps*> kPackedBf16[] = {{Isa::avx512, ULP_ON_X86(&kPackedBf16Avx512)},
                                                            {Isa::avx2, ULP_ON_X86(&kPackedBf16Avx2)},
                                                            {Isa::portable, &kPackedBf16Portable}};

}  // namespace

const PackedProductOps& packed_product_ops(Isa isa, bool bf16) {
#if defined(__x86_64__)
  if (bf16 && has_fast_bf16_pairs(isa)) return kPackedBf16Avx512Bf16;
#endif
  return *(bf16 ? first_admitted(kPackedBf16, isa) : first_admitted(kPackedFloats, isa));
}

}  // namespace ulp::kernels
