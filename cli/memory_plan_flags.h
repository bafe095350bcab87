// The check of what `ulp train` and `ulp memory` are told of activations and of the optimizer's state.
#pragma once

#include "ulp/app/train/memory_plan.h"
#include "ulp/train/train_options.h"

namespace ulp::cli {

/// Throws CLI::ValidationError where the plan, or the plan and the options, do not go together, and FileError
/// for a folder that
/// takes no file.
void check_memory_plan(const app::MemoryPlan& plan, const train::TrainOptions& options);

}  // namespace ulp::cli
