// The memory of one bucket: its gradients, its parameters where they are sharded, and this rank's share of
// both; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "ulp/distributed/bucket_plan.h"
#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

/// What a bucket is to do with its gradients.
struct BucketOptions {
  bool share_gradients = false;                     ///< keep this rank's share of their mean alone
  std::optional<c10::ScalarType> reduce_type = {};  ///< what they travel as; nothing: as they are
};

class Bucket {
 public:
  Bucket(BucketPlan plan, const std::vector<at::Tensor>& parameters, ProcessGroup& group,
         BucketOptions options);

  const BucketPlan& plan() const { return plan_; }
  int64_t share_size() const { return plan_.size / group_.size(); }

  /// Moves a parameter's gradient into the bucket; zeros where it has none. The gradient is a view of the
  /// bucket then, or, where gradients are shared, undefined.
  void take(const BucketSlot& slot);
  /// Starts to average over the ranks what was taken.
  void start_reduce();
  /// Ends that. Where gradients are shared the result is added to what the share holds.
  void finish_reduce();
  /// A parameter's gradient as the bucket holds it; where gradients are not shared.
  at::Tensor gradient(const BucketSlot& slot) const { return slice(gradients_, slot); }
  /// Forgets the gradients that shares hold.
  void forget_gradients();

  /// This rank's share of the gradients: a view of the bucket, or what finish_reduce() left. Undefined where
  /// nothing came.
  at::Tensor gradient_share() const;

  /// Makes the parameters views of one piece of memory.
  void flatten_parameters();
  /// This rank's share of the parameters; after flatten_parameters().
  at::Tensor parameter_share() const;
  /// Starts to fill the other ranks' shares of the parameters in; to be waited for.
  Work start_gather();

  /// From here on the parameters have memory between gather() and release() alone; the share has its own.
  /// After flatten_parameters().
  void shard_parameters();
  /// Starts to give the parameters memory and values, if they have none; gather() waits for it.
  void prefetch();
  void gather();
  /// Takes the parameters' memory away.
  void release();
  /// Takes this rank's share of what the parameters hold now.
  void keep_share();

 private:
  at::Tensor slice(const at::Tensor& flat, const BucketSlot& slot) const;
  at::Tensor own(const at::Tensor& flat) const;

  BucketPlan plan_;
  std::vector<at::Tensor> parameters_;  // all of the model
  ProcessGroup& group_;
  BucketOptions options_;
  at::Tensor gradients_, travelling_, received_, gradient_share_;
  at::Tensor flat_parameters_, parameter_share_;  // the second one after shard_parameters()
  bool present_ = true;                           // the parameters have memory
  Work work_, gathering_;
};

}  // namespace ulp::distributed
