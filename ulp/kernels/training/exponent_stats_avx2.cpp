#define ULP_EXPONENT_COUNTERS kExponentCountersAvx2
#include "ulp/kernels/training/exponent_stats_body.h"
