// The public header of what the tool does, for programs that do the same: model files with a description of their inputs,
// and the report of what works with a model (`ulp check`).
#pragma once

#include "ulp/app/model_file.h"
#include "ulp/app/road_report.h"
