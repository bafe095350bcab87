#define ULP_EXPONENT_COUNTERS kExponentCountersAvx512
#include "ulp/kernels/exponent_stats_body.h"
