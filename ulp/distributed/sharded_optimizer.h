// The optimizer's step where each process keeps a share of masters and moments alone: stages 1 to 3 of ZeRO.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/export.h"
#include "ulp/distributed/data_parallel.h"

namespace ulp::distributed {

struct Shard;

/// FusedOptimizer over this rank's share of each bucket. After the step the ranks exchange what each has
/// updated, and all have the same parameters again.
///
/// Weights are those that FusedOptimizer would give on every rank with the gradients of DataParallel, for
/// every kind of master and moment: with ZeroStage::states bit for bit, clipped, too; from
/// ZeroStage::gradients on to the rounding of sums (of the norm, of micro-batches, and of more than two
/// ranks' gradients). Bytes of a rank beside activations, with P parameters of 2 bytes, fp32 masters and
/// Adam: 4P + 12P/N with `states`, 2P + 14P/N with `gradients`, 16P/N with `parameters` (and the piece of the
/// model that runs), 16P without.
class ULP_API ShardedOptimizer {
 public:
  /// The groups hold parameters of the model of `parallel`, which must outlive this. Their memory is moved:
  /// they become views of the buckets. Throws ulp::Error as FusedOptimizer does, for ZeroStage::off, for
  /// moments of 8 and 4 bits, and for other tensors.
  ShardedOptimizer(DataParallel& parallel, const std::vector<amp::FusedGroup>& groups, uint64_t seed = 0);
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Over this rank's pieces of the parameters: for schedules, which set its rate. Its own step() is not to
  /// be called.
  amp::FusedOptimizer& optimizer();
  const amp::FusedOptimizer& optimizer() const;
  ProcessGroup& group() const;
  const std::vector<Shard>& shards() const;  ///< this rank's pieces, for those who save them

  /// Forgets all gradients.
  void zero_grad();
  /// As amp::fused_step() on all ranks together: one verdict, one norm, one clip factor. All ranks call it.
  amp::FusedStepResult step(amp::GradScaler* scaler, const amp::FusedStepOptions& options = {});

  /// An optimizer of whole parameters with the state of all ranks, as io::save_checkpoint() takes it: a run
  /// may go on from it with any number of processes, or one. On rank 0; null on the others. All ranks call
  /// it.
  std::unique_ptr<amp::FusedOptimizer> gather() const;
  /// Makes an unsharded optimizer without state, for io::load_checkpoint() to fill in.
  std::unique_ptr<amp::FusedOptimizer> whole() const;
  /// Takes this rank's share of the state of an optimizer as gather() and whole() give it, and its options.
  void scatter(const amp::FusedOptimizer& from);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distributed
