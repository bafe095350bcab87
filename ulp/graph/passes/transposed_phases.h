// A transposed convolution as an ordinary one whose results lie side by side in its channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// What becomes of a transposed convolution of stride s: a convolution of stride 1 and groups 1 that has
/// product(s) times as many channels, part p * O + o of which are the results o of phase p, joined by
/// ulp::depth_to_space, between reshapes where it is not of images.
struct ULP_API TransposedPhases {
  std::vector<int64_t> strides;  ///< of the transposed convolution
  std::vector<int64_t> reach;    ///< the convolution's padding
  std::vector<int64_t> crops;    ///< results beyond those of the transposed convolution
  std::vector<int64_t> more;     ///< results of the convolution beyond the size of its input
  std::vector<int64_t> sizes;    ///< of its weight
  at::Tensor taps;               ///< [sizes]: which number of the weight, or as many as it has for a zero

  /// Of a weight [I, O / groups, kernel...] and one number for each axis.
  TransposedPhases(const at::Tensor& weight, const std::vector<int64_t>& stride,
                   const std::vector<int64_t>& padding, const std::vector<int64_t>& output_padding,
                   const std::vector<int64_t>& dilation, int64_t groups);
  int64_t phases() const;
  /// The convolution's weight, with gradients.
  at::Tensor weight_of(const at::Tensor& weight) const;
  /// The results of the convolution as those of the transposed one.
  at::Tensor joined(const at::Tensor& parts) const;
};

/// What the names of a convolution, and of a clamp, end in that stand for one behind or in front of
/// ulp::depth_to_space.
inline constexpr const char* kPhasesSuffix = "_conv";

/// transposed_as_conv() of pass.h for calls of these ops that `takes` is true of.
PassReport transposed_as_conv(Graph& graph, const std::vector<const char*>& ops,
                              const std::function<bool(const Node&)>& takes);

}  // namespace ulp::graph
