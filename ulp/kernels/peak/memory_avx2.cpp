#define ULP_VECTOR_BYTES 32
#include "ulp/kernels/peak/memory_body.h"

namespace ulp::kernels {

const MemoryTable kMemoryAvx2 = ULP_MEMORY_TABLE;

}  // namespace ulp::kernels
