// Which gradients travel together, and where each lies in what travels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::distributed {

/// Elements to which parameters and shares are aligned: random numbers of stochastic rounding come in such
/// groups.
inline constexpr int64_t kBucketAlignment = 128;

/// A parameter's place in a bucket.
struct BucketSlot {
  size_t parameter;  ///< its index
  int64_t begin, size;
  bool operator==(const BucketSlot&) const = default;
};

/// Parameters of one type and device, one behind the other, each from a multiple of kBucketAlignment on.
struct BucketPlan {
  std::vector<BucketSlot> slots;
  int64_t size = 0;  ///< in elements, a multiple of the number of ranks times kBucketAlignment
  bool operator==(const BucketPlan&) const = default;
};

/// Puts the parameters into buckets, the last parameter first, for backward reaches it first. A bucket is
/// closed when it has at least `bytes`, the first one at `first_bytes`: it can start early. Both are > 0.
ULP_API std::vector<BucketPlan> plan_buckets(const std::vector<at::Tensor>& parameters, int ranks,
                                             int64_t first_bytes, int64_t bytes);

/// One bucket of these parameters, which are of one type and device.
ULP_API BucketPlan plan_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                               int ranks);

/// A part of a parameter, in elements of its memory, and of a rank's share of the bucket.
struct BucketPiece {
  size_t parameter;
  int64_t begin, size;  ///< in the parameter
  int64_t at;           ///< in the share
  bool operator==(const BucketPiece&) const = default;
};

/// Lists the pieces of parameters in the shard of a rank, which is the rank-th of `ranks` equal parts of the
/// bucket.
ULP_API std::vector<BucketPiece> shards_of(const BucketPlan& plan, int rank, int ranks);

}  // namespace ulp::distributed
