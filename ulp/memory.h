// The public header of training memory: gradient checkpointing, compressed and offloaded activations, and the prediction
// of what a run takes.
//
//   ulp::memory::checkpoint(*captured, ulp::memory::plan_sqrt(captured->graph()));
#pragma once

#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/memory/checkpoint/costs.h"
#include "ulp/memory/checkpoint/function.h"
#include "ulp/memory/checkpoint/plan.h"
#include "ulp/memory/predict/forecast.h"
#include "ulp/memory/predict/prediction.h"
#include "ulp/memory/predict/predictor.h"
#include "ulp/memory/predict/recorder.h"
#include "ulp/memory/predict/recording.h"
#include "ulp/memory/saved/save_scope.h"
#include "ulp/memory/saved/saved_options.h"
