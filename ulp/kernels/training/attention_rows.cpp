#include "ulp/kernels/training/attention_rows.h"

#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const AttentionRowOps*> kAttentionRowTables[] = {
    {Isa::avx512, ULP_ON_X86(&kAttentionRowOpsAvx512)},
    {Isa::avx2, ULP_ON_X86(&kAttentionRowOpsAvx2)},
    {Isa::portable, &kAttentionRowOpsPortable}};

}  // namespace

const AttentionRowOps& attention_row_ops(Isa isa) {
  return *first_admitted(kAttentionRowTables, isa);
}

}  // namespace ulp::kernels
