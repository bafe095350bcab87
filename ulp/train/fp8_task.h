// Tasks whose models compute in fp8.
#pragma once

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/train/task.h"

namespace ulp::train {

/// The task with its model captured, for samples of its own sizes, and made an fp8 model (amp::to_fp8). The task's own
/// model shares all parameters and buffers, so that it is trained, too. A model with fp8 layers stays as it is. Throws
/// ulp::Error for a model that is neither captured nor an image or text network, and as amp::to_fp8(). `report` (may be
/// null) receives which layers compute in fp8, and which not and why.
ULP_API Task fp8_task(Task task, const amp::Fp8Recipe& recipe, graph::PassReport* report = nullptr);

}  // namespace ulp::train
