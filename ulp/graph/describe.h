// How messages and reports call a node: one way for a short name, one for all that is known.
#pragma once

#include <string>

#include "ulp/base/error.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// The short name: "layer1.0.conv1", the module's path, for a node that reads its module's parameters or has
/// a weight; the node's own name for everything else.
ULP_API std::string label(const Node& node);

/// Op, value and module: "aten::conv2d 'conv2d_3' in layer1.0.conv1"; "module 'observer_x' 'observer_x'",
/// "input 'x'".
ULP_API std::string describe(const Node& node);

/// The node as the place of an error; op is empty for what is neither a call nor a module.
ULP_API ErrorPlace error_place(const Node& node);

/// Computed from parameters, buffers and constants alone.
bool from_attributes(const Node& node);

}  // namespace ulp::graph
