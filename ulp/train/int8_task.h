// Tasks whose models compute in int8.
#pragma once

#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/train/task.h"

namespace ulp::train {

/// The task with its model captured, for samples of its own sizes, and made an int8 model (amp::to_int8). The task's
/// own model shares all parameters and buffers, so that it is trained, too. A model with int8 layers stays as it is.
/// Throws ulp::Error for a model that is neither captured nor an image or text network, and as amp::to_int8().
/// `report` (may be null) receives which layers compute in int8, and which not and why.
ULP_API Task int8_task(Task task, const amp::Int8Recipe& recipe, graph::PassReport* report = nullptr);

}  // namespace ulp::train
