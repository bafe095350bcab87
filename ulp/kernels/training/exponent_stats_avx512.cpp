#define ULP_EXPONENT_COUNTERS kExponentCountersAvx512
#include "ulp/kernels/training/exponent_stats_body.h"
