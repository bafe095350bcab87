// Tasks whose models are captured and rewritten before they train. Internal to the room.
#pragma once

#include <memory>

#include "ulp/base/parallel.h"
#include "ulp/graph/graph_module.h"
#include "ulp/train/task.h"

namespace ulp::train {

/// The task with its model captured, for samples of its own sizes, and made another model that shares its parameters.
/// A captured model is taken as it is. Throws ulp::Error for a model that is neither captured nor an image or text
/// network; `where` is the place that the error names.
Task captured_task(
    Task task, const char* where,
    FunctionRef<std::shared_ptr<graph::GraphModule>(const std::shared_ptr<graph::GraphModule>&)> rewrite);

}  // namespace ulp::train
