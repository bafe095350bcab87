// Rotation of the residual stream of a transformer: the network stays what it is, and outliers are spread
// over all channels.
//
//   auto rotated = ulp::quant::rotate_residual(captured);
//
// QuaRot (Ashkboos et al. 2024, arXiv 2404.00456, section 4, stage 1a): an RMS norm does not see an
// orthogonal matrix Q, rms(x Q) = rms(x). So whatever writes into the stream writes times Q, the weight of
// each norm goes into the layers that read it, and these read times Q^T. Nothing is computed at run time. A
// layer norm does not see a Q that keeps the mean over the channels, Q 1 = 1; its bias goes into the layers
// that read it.
//
// Q is a Walsh-Hadamard matrix over sqrt(n) whose columns have fixed signs; of a width n = 2^k m with m odd
// it is the Kronecker product of that of 2^k and the cosine transform of m. One that keeps the mean is such a
// matrix of n - 1 among all rows but the first of H (the first one is the mean), between H^T and H.
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::quant {

/// A float model in the form of inference whose residual stream is rotated; results differ by rounding.
/// Weights of layers keep their names. A table that the output layer shares becomes two, as the last norm's
/// weight goes into the output layer alone: the model grows by it. Parameters are rounded to float32 once,
/// from float64. The captured model stays as it is. Throws ulp::Error, naming the op, for null, a model
/// without an embedding, a norm between a layer and the stream (Gemma 2's), anything else that reads or writes
/// the stream, weights that are computed or not float32, and weights that are not finite. `report` (may be
/// null) receives what was rotated.
ULP_API std::shared_ptr<graph::GraphModule> rotate_residual(
    const std::shared_ptr<graph::GraphModule>& captured, graph::PassReport* report = nullptr);

/// The orthogonal matrix of that width, f64 [width, width]; with `keeps_mean` its rows and columns add up to
/// 1. Throws ulp::Error for a width below 1.
ULP_API at::Tensor rotation_matrix(int64_t width, bool keeps_mean = false);

}  // namespace ulp::quant
