#define ULP_FAKE_QUANT_OPS kFakeQuantOpsAvx2
#include "ulp/kernels/training/fake_quant_body.h"
