// A captured model with tensors of its own.
#pragma once

#include <memory>

#include "ulp/graph/graph_module.h"

namespace ulp::app {

/// Nothing that happens to the one is seen in the other. Parameters that are tied stay tied; the mode is the model's.
std::shared_ptr<graph::GraphModule> copy_of(const graph::GraphModule& model);

}  // namespace ulp::app
