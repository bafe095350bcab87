#define ULP_FAKE_QUANT_OPS kFakeQuantOpsPortable
#include "ulp/kernels/training/fake_quant_body.h"
