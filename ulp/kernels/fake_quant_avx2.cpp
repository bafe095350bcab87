#define ULP_FAKE_QUANT_OPS kFakeQuantOpsAvx2
#include "ulp/kernels/fake_quant_body.h"
