// The public header of the runtime (libulp_runtime): loads engine files and runs them, without LibTorch.
//
//   ulp::runtime::Engine engine("model.ulp");
//   engine.run(batch, inputs, outputs);
#pragma once

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/runtime/decoding/sampler.h"
#include "ulp/runtime/engine/context.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/engine/thread_pool.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/runtime/plan/step_work.h"
#include "ulp/version.h"
