// Data parallel training: every process has the whole model and a part of the batch, and gradients are
// averaged while backward still runs (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data
// Parallel Training").
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/distributed/process_group.h"

namespace torch::nn {
class Module;
}

namespace ulp {
class FieldVisitor;
}

namespace ulp::distributed {

/// The part of the training state that is sharded, into as many equal shards as there are
/// processes (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models").
enum class ZeroStage {
  off,        ///< nothing: each process has all of it
  states,     ///< masters and moments
  gradients,  ///< and gradients
  parameters  ///< and parameters, which are there whole while they are used alone; for captured models
};

/// The data type in which gradients are exchanged.
enum class GradientType {
  parameter,  ///< as they are
  bf16,       ///< half the bytes of fp32
  fp16        ///< the same; needs a loss scale that leaves room
};

/// How gradients are averaged.
struct ULP_API DataParallelOptions {
  ZeroStage zero = ZeroStage::off;
  GradientType reduce_type = GradientType::parameter;
  double bucket_mib = 25;       ///< > 0: gradients that travel together
  double first_bucket_mib = 1;  ///< > 0: the first ones, which start early

  void visit_fields(FieldVisitor& visitor);
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// Averages the gradients of a model's parameters over the ranks of a group. Backward does it by itself: when
/// it returns, every rank has the mean of all ranks' gradients. The loss is a mean over the rank's own
/// samples; ranks that have equally many then train as one process would with all of them.
///
/// An infinity or NaN of one rank is one in every rank's mean: scalers and fused_step() come to the same
/// verdict on all ranks. A parameter that no rank used has no gradient; one that some ranks used counts as
/// zero in the others. Batch normalization normalises with the statistics of the rank's own samples, as in
/// one process with that batch.
///
/// Every rank runs the same number of backwards. Gradients are views of the buckets; set them to undefined
/// between steps (zero_grad() of LibTorch's optimizers does). Gradients of gradients are not averaged.
class ULP_API DataParallel {
 public:
  /// Gives the parameters and buffers of rank 0 to all ranks. The parameters that require gradients now are
  /// those that are averaged; their types and sizes must stay. With ZeroStage::parameters the model is a
  /// graph::GraphModule, whose parameters have no memory of their own from here on. Throws ulp::Error for a
  /// model that differs from rank 0's, for one that is not captured, and for options.
  DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  ProcessGroup& group() const;
  const DataParallelOptions& options() const;

  /// While it lives, backward adds up the rank's own gradients and sends nothing: for all micro-batches of a
  /// step but the last. From ZeroStage::gradients on there is no room for them, and nothing changes: every
  /// backward is averaged.
  class ULP_API NoSync {
   public:
    explicit NoSync(DataParallel& parallel);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Gives the buffers of rank 0 to all ranks: running statistics, before the model is evaluated or saved.
  void broadcast_buffers();

  /// With ZeroStage::parameters: the captured model's result, piece by piece. A piece's parameters are
  /// gathered before it runs and before its backward, while the piece before it runs, and have no memory
  /// else. Throws ulp::Error for other stages, and as graph::GraphModule::forward().
  at::Tensor forward(const std::vector<at::Tensor>& inputs);

  /// While it lives the parameters are whole on every rank: to save, load or evaluate the model. What is
  /// written to them stays. All ranks make and destroy it. Without ZeroStage::parameters nothing happens.
  class ULP_API WholeParameters {
   public:
    explicit WholeParameters(DataParallel& parallel);
    ~WholeParameters();
    WholeParameters(const WholeParameters&) = delete;
    WholeParameters& operator=(const WholeParameters&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// With ZeroStage::parameters: training is over, and the parameters are whole from here on. All ranks call
  /// it.
  void unshard();

  struct State;  ///< of the room's own use
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distributed

template <>
struct ulp::EnumNames<ulp::distributed::ZeroStage> {
  using enum distributed::ZeroStage;
  static constexpr std::array<Word<distributed::ZeroStage>, 4> list = {{{off, "0", "nothing"},
                                                                        {states, "1", "masters and moments"},
                                                                        {gradients, "2", "and gradients"},
                                                                        {parameters, "3", "and parameters"}}};
};

template <>
struct ulp::EnumNames<ulp::distributed::GradientType> {
  using enum distributed::GradientType;
  static constexpr std::array<Word<distributed::GradientType>, 3> list = {
      {{parameter, "parameter", "that of the parameter"}, {bf16, "bf16"}, {fp16, "fp16"}}};
};
