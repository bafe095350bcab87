// Stage 3 of ZeRO: parameters that are whole only while the piece of the model that reads them runs; internal
// to the room.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ulp/distributed/bucket.h"
#include "ulp/distributed/segments.h"

namespace ulp::distributed {

/// The pieces of a captured model and the buckets of their parameters: one a type and piece, in the order in
/// which backward ends them, and last those that several pieces read (tied weights) or none.
class ParameterUnits {
 public:
  /// Pieces of about so many bytes of parameters. Throws ulp::Error for a model that is not captured, and as
  /// Segments.
  ParameterUnits(torch::nn::Module& model, int64_t bytes);

  std::vector<BucketPlan> plan(const std::vector<at::Tensor>& parameters, int ranks);
  /// Takes the parameters' memory away, but for the shares.
  static void shard(const std::vector<std::unique_ptr<Bucket>>& buckets);
  at::Tensor forward(const std::vector<at::Tensor>& inputs,
                     const std::vector<std::unique_ptr<Bucket>>& buckets) const;

 private:
  void gather(size_t segment, const std::vector<std::unique_ptr<Bucket>>& buckets, bool forward) const;

  std::unique_ptr<Segments> segments_;
  std::vector<std::vector<size_t>> buckets_of_;  // each piece: one a type
  std::vector<size_t> tied_;                     // parameters that several pieces read, or none
};

}  // namespace ulp::distributed
