// The public header of measurements: timing, memory, peaks of the machine, rooflines.
#pragma once

#include "ulp/measure/gpus/nvidia.h"
#include "ulp/measure/interference.h"
#include "ulp/measure/measure.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/measure/op_profile.h"
#include "ulp/measure/peaks/caches.h"
#include "ulp/measure/peaks/peaks.h"
#include "ulp/measure/roofline.h"
