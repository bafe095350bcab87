// What a pass over a graph is and what it reports.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// What a pass did, and for each near miss, why not.
struct PassReport {
  std::string pass;
  std::vector<std::string> changes;      ///< "conv1 -> bn1 folded"
  std::vector<std::string> near_misses;  ///< "conv1 -> bn1 not folded: conv1's output is also used by add_3"
  /// The passes that this one ran, in order, each with its own lines.
  std::vector<PassReport> parts = {};
  bool changed() const { return !changes.empty(); }
};

/// Brings the C++ frontend's spellings to one form so that later passes match one form: t + addmm, matmul +
/// add_ -> aten::linear; aten::_convolution -> aten::conv2d; softmax(q k^T) v ->
/// aten::scaled_dot_product_attention; adaptive average pooling to 1x1 and mean over H and W ->
/// aten::adaptive_avg_pool2d; view + transpose + view over the channels -> aten::channel_shuffle; what public ops call inside -> these; dropout in
/// eval is left as it is.
ULP_API PassReport canonicalize(Graph& graph);

/// Folds batch norm into the convolution (1d, 2d, 3d, transposed) or linear layer before it, for inference:
/// W' = gamma / sqrt(var + eps) W, b' = beta + gamma / sqrt(var + eps) (b - mu). New parameters take the
/// layer's names.
ULP_API PassReport fold_batch_norm(Graph& graph);

/// Makes batch norms that fold into no layer (fold_batch_norm comes first) depthwise convolutions of one tap,
/// of 1, 2 or 3 dimensions as their input has, or of rows a product and a sum: x * scale + shift, for inference.
ULP_API PassReport batch_norm_as_conv(Graph& graph);

/// Makes transposed convolutions of 1, 2 and 3 dimensions ordinary ones, for inference: outputs a stride
/// apart have the same taps, so the results of a window of one stride become the channels of a convolution,
/// whose zeros among the taps are computed, too, and ulp::depth_to_space, between reshapes for sequences and
/// volumes, joins them. A clamp behind comes first. Exact up to the order of summation.
ULP_API PassReport transposed_as_conv(Graph& graph);

/// Linear layers that read the transpose of a stored weight (GPT-2's do) read a stored transpose, for inference: its
/// codes lie in the layer's own order. New parameters are called as the old ones, ".transposed" behind.
ULP_API PassReport store_transposes(Graph& graph);

/// Removes what does nothing in eval mode: dropout, identity, a clamp of what is clamped, contiguous on dense
/// values, train-only nodes; for graphs that will only ever infer.
ULP_API PassReport strip_training(Graph& graph);

}  // namespace ulp::graph
