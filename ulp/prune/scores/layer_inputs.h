// What goes into the layers that read given weights: sums over calibration data. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ulp/graph/graph_module.h"

namespace ulp::prune {

/// Sums over all rows x of a layer's input, in double. A convolution's rows are the windows that it sees, in
/// the order of its weight without the first dimension.
struct InputSums {
  at::Tensor squares;   ///< [columns]: sum of x_j^2
  at::Tensor products;  ///< [columns, columns]: sum of x x'; where it was asked for
  int64_t rows = 0;
};

/// Runs the module in eval mode without gradients, masks in effect, on each list of inputs. One result a
/// parameter; all layers that read it are summed. Throws ulp::Error naming the parameter that no linear layer
/// or convolution without groups reads as its weight.
std::vector<InputSums> layer_inputs(const graph::GraphModule& module,
                                    const std::vector<std::string>& parameters,
                                    const std::vector<std::vector<at::Tensor>>& inputs, bool products);

}  // namespace ulp::prune
