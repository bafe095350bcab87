#include "ulp/kernels/training/fake_quant.h"

#include "ulp/base/error.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const FakeQuantOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kFakeQuantOpsAvx512)},
                                                    {Isa::avx2, ULP_ON_X86(&kFakeQuantOpsAvx2)},
                                                    {Isa::portable, &kFakeQuantOpsPortable}};

const FakeQuantOps& fake_quant_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

}  // namespace

void fake_quantize(const FakeQuant& how, DataType type, const void* x, int64_t n, void* y, uint64_t* inside,
                   Isa isa, const Parallel& parallel) {
  if (type != DataType::f32 && type != DataType::bf16) {
    fail("kernels.fake_quantize", "expected elements of f32 or bf16, got ", to_string(type));
  }
  const auto quantize = fake_quant_ops(isa).quantize[type == DataType::bf16][inside != nullptr];
  split(n, parallel,
        [&](int64_t begin, int64_t count) { quantize(how, x, begin, begin + count, y, inside); });
}

void keep_inside(const uint64_t* inside, int64_t element_bytes, const void* gradient, int64_t n, void* out,
                 Isa isa, const Parallel& parallel) {
  if (element_bytes != 2 && element_bytes != 4 && element_bytes != 8) {
    fail("kernels.keep_inside", "expected elements of 2, 4 or 8 bytes, got ", element_bytes);
  }
  const auto keep = fake_quant_ops(isa).keep[element_bytes == 2 ? 0 : element_bytes == 4 ? 1 : 2];
  split(n, parallel, [&](int64_t begin, int64_t count) {
    const int64_t offset = begin * element_bytes;
    keep(inside + begin / kMaskBits, static_cast<const char*>(gradient) + offset, count,
         static_cast<char*>(out) + offset);
  });
}

}  // namespace ulp::kernels
