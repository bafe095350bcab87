#include "ulp/kernels/training/recurrent_cells.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const RecurrentCellOps*> kRecurrentCellTables[] = {
    {Isa::avx512, ULP_ON_X86(&kRecurrentCellOpsAvx512)},
    {Isa::avx2, ULP_ON_X86(&kRecurrentCellOpsAvx2)},
    {Isa::portable, &kRecurrentCellOpsPortable}};

}  // namespace

const RecurrentCellOps& recurrent_cell_ops(Isa isa) {
  return *first_admitted(kRecurrentCellTables, isa);
}

}  // namespace ulp::kernels
