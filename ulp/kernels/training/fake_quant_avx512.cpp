#define ULP_FAKE_QUANT_OPS kFakeQuantOpsAvx512
#include "ulp/kernels/training/fake_quant_body.h"
