#define ULP_EXPONENT_COUNTERS kExponentCountersPortable
#include "ulp/kernels/training/exponent_stats_body.h"
