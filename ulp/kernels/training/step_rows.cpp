#include "ulp/kernels/training/step_rows.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const StepRowOps*> kStepRowTables[] = {{Isa::avx512, ULP_ON_X86(&kStepRowOpsAvx512)},
                                                         {Isa::avx2, ULP_ON_X86(&kStepRowOpsAvx2)},
                                                         {Isa::portable, &kStepRowOpsPortable}};

}  // namespace

const StepRowOps& step_row_ops(Isa isa) {
  return *first_admitted(kStepRowTables, isa);
}

}  // namespace ulp::kernels
