// Weight sharing: a tensor as codes of a few trained values (Han, Mao and Dally 2016, "Deep compression",
// section 3).
//
// The dispatcher operator, with autograd:
//
//   ulp::share_weights(Tensor codebook, Tensor codes, Tensor? mask) -> Tensor
//
// codebook: floating point [entries], 1..256; codes: uint8, any shape, each below entries; mask: bool of that
// shape, or none. The result has the codes' shape and the codebook's dtype: codebook[code] where the mask is
// set, 0 elsewhere. The gradient of an entry is the sum of the gradients of its members, taken in double in
// the order of memory on the CPU; 0 without members.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/base/export.h"
#include "ulp/prune/storage/sharing/kmeans.h"

namespace ulp::prune {

/// A weight whose elements share values.
struct SharedWeights {
  at::Tensor codebook;  ///< [entries], rising, of the weight's dtype
  at::Tensor codes;     ///< uint8, of the weight's shape; 0 where the mask is not set
  at::Tensor mask;      ///< bool, true where the weight is not 0; undefined where it nowhere is
};

/// Clusters the elements that are not 0 (-0 is 0 here, and comes back as 0). Throws ulp::Error for a tensor
/// that is not floating point or not finite, and for bad options. A weight of zeros alone gets one entry, 0.
ULP_API SharedWeights cluster_weights(const at::Tensor& weight, const KMeansOptions& options);

/// The operator. Throws ulp::Error for other shapes, dtypes or codes than above.
ULP_API at::Tensor share_weights(const at::Tensor& codebook, const at::Tensor& codes,
                                 const std::optional<at::Tensor>& mask = std::nullopt);

/// dL/dcodebook [entries], in the gradient's dtype, from dL/dW.
ULP_API at::Tensor codebook_gradient(const at::Tensor& gradient, int64_t entries, const at::Tensor& codes,
                                     const std::optional<at::Tensor>& mask = std::nullopt);

}  // namespace ulp::prune
