// Data for networks with several inputs: a NumPy archive with an array for each input, by its name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::graph {
class GraphModule;
}

namespace ulp::app {

/// Samples of all inputs of a network, which nobody has labelled.
struct ULP_API NamedInputs {
  std::vector<at::Tensor> tensors;  ///< in the network's order, whole; of the inputs' types
  std::vector<int64_t>
      batch_dims;  ///< of each, the dimension of the samples; -1: it is the same for all of them
  int64_t samples = 0;

  /// The first `most` samples in batches of `batch`, each a list of inputs.
  std::vector<std::vector<at::Tensor>> batches(int64_t most, int64_t batch) const;
};

/// Reads FILE.npz for the network: each input's array has the input's name; others are passed over. Nothing
/// for a file of another name, and beside a network of one input for the archives of classifiers (x and y).
/// Throws FileError for a file that is missing or damaged, an input without an array, another number of
/// samples than the first input has, values of another kind than the input's, and sizes that the network does
/// not take.
ULP_API std::optional<NamedInputs> load_named_inputs(const std::string& name,
                                                     const graph::GraphModule& model);

}  // namespace ulp::app
