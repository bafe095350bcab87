#define ULP_EXPONENT_COUNTERS kExponentCountersPortable
#include "ulp/kernels/exponent_stats_body.h"
