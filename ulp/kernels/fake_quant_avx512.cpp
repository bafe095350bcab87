#define ULP_FAKE_QUANT_OPS kFakeQuantOpsAvx512
#include "ulp/kernels/fake_quant_body.h"
