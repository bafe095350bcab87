#define ULP_FAKE_QUANT_OPS kFakeQuantOpsPortable
#include "ulp/kernels/fake_quant_body.h"
