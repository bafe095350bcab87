// Why ops stand alone that could have been part of the step before them.
#pragma once

#include <functional>
#include <string>

#include "ulp/lower/fuse.h"

namespace ulp::lowering {

/// One line for each add, activation, pooling and quantize node that follows a convolution, a linear layer or
/// an add and is a step of its own, with both names and the reason.
void report_unfused(const graph::Graph& graph, const Groups& groups,
                    const std::function<void(const std::string&)>& report);

}  // namespace ulp::lowering
