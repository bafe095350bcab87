// The public header of the numerics watch: what a number format does to a training run, op by op.
#pragma once

#include "ulp/amp/watch/format_range.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/amp/watch/watch_summary.h"
