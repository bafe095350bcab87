// The public header of captured graphs: capture, the graph itself, the module that runs it, and passes over it.
//
//   auto captured = ulp::capture(model, {example});
#pragma once

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/capture/tensors.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/module_copy.h"
#include "ulp/graph/passes/pass.h"
