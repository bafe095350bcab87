// The public header of lowering: a captured graph becomes a plan that ulp/runtime.h runs, as a whole or in part, with
// LibTorch as the fallback for the rest.
#pragma once

#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
