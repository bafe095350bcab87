#include "ulp/kernels/training/step_images.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const StepImageOps*> kStepImageTables[] = {{Isa::avx512, ULP_ON_X86(&kStepImageOpsAvx512)},
                                                             {Isa::avx2, ULP_ON_X86(&kStepImageOpsAvx2)},
                                                             {Isa::portable, &kStepImageOpsPortable}};

}  // namespace

const StepImageOps& step_image_ops(Isa isa) {
  return *first_admitted(kStepImageTables, isa);
}

}  // namespace ulp::kernels
