#define ULP_VECTOR_BYTES 16
#include "ulp/kernels/peak/memory_body.h"

namespace ulp::kernels {

const MemoryTable kMemoryPortable = ULP_MEMORY_TABLE;

}  // namespace ulp::kernels
