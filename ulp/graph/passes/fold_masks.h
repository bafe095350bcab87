// Masked parameters as plain ones, for whoever reads weights and does not train them under their masks.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// Multiplies masks into their parameters: each call of ulp::apply_mask on a parameter and a mask of the
/// graph goes, the parameter's attribute (under all names that share its tensor) holds a new tensor with
/// zeros where the mask has them, and the mask's attribute goes. The tensors that the graph had stay as they
/// are, for other graphs that share them.
ULP_API PassReport fold_masks(Graph& graph);

}  // namespace ulp::graph
