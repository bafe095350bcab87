// Holds a graph against its model at sizes far from the examples'.
#pragma once

#include <vector>

#include "ulp/graph/capture/builder.h"
#include "ulp/graph/capture/sizes.h"

namespace ulp::graph {

/// The graph made anew of `runs` and of runs at far_points(). `near`: the graph of `runs` alone. A value
/// whose sizes are no polynomial of the sizes in all of them has no known sizes. Throws ulp::Error naming the
/// number that bends, the call that is another one or the tensor that changes, unless the graph gives what
/// the model gives at these sizes, within rounding, in eval mode and in train mode. Sizes at which the model
/// cannot run are left out. The tensors that `runs` hold are given up first, so that memory does not grow.
Built build_far(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                const Inputs& inputs, bool trains, Runs& runs, Built near);

}  // namespace ulp::graph
