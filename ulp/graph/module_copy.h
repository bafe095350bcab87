// A captured model with tensors of its own.
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {

/// Nothing that happens to the one is seen in the other. Parameters that are tied stay tied; the mode is the model's.
ULP_API std::shared_ptr<GraphModule> copy_of(const GraphModule& model);

}  // namespace ulp::graph
