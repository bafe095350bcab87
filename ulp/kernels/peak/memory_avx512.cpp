#define ULP_VECTOR_BYTES 64
#include "ulp/kernels/peak/memory_body.h"

namespace ulp::kernels {

const MemoryTable kMemoryAvx512 = ULP_MEMORY_TABLE;

}  // namespace ulp::kernels
