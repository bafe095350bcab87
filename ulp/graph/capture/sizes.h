// At which sizes a model is run: what the user leaves free, and the examples brought to other sizes.
#pragma once

#include <vector>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// What may have another size in each run.
struct OpenSizes {
  std::vector<int64_t> batch_dims;  ///< of each input; -1: no batch
  BatchRange batch_range;
  std::vector<DynamicDimension> free;
  std::vector<int64_t> example;  ///< sizes of the examples: the batch, 0 for none, and the free dimensions

  RunSizes at(std::vector<int64_t> sizes) const;
};

/// Reads what the options say of sizes. Throws ulp::Error for dimensions that the examples do not have, examples that
/// disagree about a size, and limits that contradict each other or the examples.
OpenSizes open_sizes(const std::vector<at::Tensor>& examples, const CaptureOptions& options);

/// The sizes whose runs tell all expressions: two batches, and three sizes of each free dimension, the example's and those
/// below it, or above it where there are none below.
SizeGrid grid_of(const OpenSizes& open);

/// The grid's points in the order of Runs::eval, and points beside it for the expressions to be tried at.
std::vector<std::vector<int64_t>> points_of(const OpenSizes& open, const SizeGrid& grid);

/// Copies of the examples at other sizes: cut, or repeated until they are long enough.
std::vector<at::Tensor> resized(const std::vector<at::Tensor>& examples, const OpenSizes& open,
                                const std::vector<int64_t>& sizes);

}  // namespace ulp::graph
