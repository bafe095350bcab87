// The public header of what the tool does, for programs that do the same: model files with a description of their inputs,
// and the report of what works with a model (`ulp check`).
#pragma once

#include "ulp/app/check/road_report.h"
#include "ulp/app/model_io/model_file.h"
