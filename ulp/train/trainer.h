// The training loop of the tool: any task, in any of the precisions, with loss scaling, accumulation and
// clipping, and checkpoints that continue bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/export.h"
#include "ulp/io/safetensors.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// The result of one step.
struct StepInfo {
  int64_t step = 0;  ///< from 0
  int64_t epoch = 0;
  double loss = 0;  ///< mean over the step's batches, of all processes
  double learning_rate = 0;
  double scale = 1;  ///< loss scale used in this step
  amp::StepResult result = amp::StepResult::stepped;
  std::optional<double> grad_norm =
      {};             ///< of all gradients together, before clipping; only where clip is given
  bool stop = false;  ///< this process, or one of those that train together, was interrupted
};

/// Looks on while a trainer works, and acts between its parts: masks and gradients may be changed there.
class ULP_API StepObserver {
 public:
  virtual ~StepObserver();
  /// Before the first forward of a step.
  virtual void begin(int64_t step, double scale);
  /// After the last backward, before anything is unscaled: the gradients are those of the loss times `scale`.
  virtual void gradients(const torch::nn::Module& model, double scale);
  virtual void end(const StepInfo& info);
  /// The state that its next step depends on besides the model, by names: kept in checkpoints, and given back
  /// when a run is resumed.
  virtual io::NamedTensors state() const;
  /// Takes that up again, after model and optimizer have. Throws FileError for a state that is not of this
  /// observer.
  virtual void restore(const io::NamedTensors& state);
};

/// One training run that can be stopped and continued at any step. In the fp8 precisions it trains fp8_task()
/// of the task: a captured form of its model, which shares parameters and buffers with it. With
/// TrainOptions::compile it trains such a form by train::compile(); observers that ask see gradients as ever,
/// and without one the parameters have none.
class ULP_API Trainer {
 public:
  /// Puts the model into train mode. With TrainOptions::compile throws ulp::Error for a network that compile()
  /// does not take, and for tasks of several processes, with a plan of activations, with another loss than
  /// cross_entropy(), or whose forward is not that of the model.
  Trainer(Task task, const TrainOptions& options);
  /// Classification of images, which must outlive the trainer. Throws ulp::Error for a batch larger than the
  /// data set.
  Trainer(std::shared_ptr<models::ImageModel> model, const io::ImageDataset& data,
          const TrainOptions& options);
  ~Trainer();

  int64_t total_steps() const;
  int64_t steps_per_epoch() const;  ///< at least 1; the last step of an epoch may reach into the next
  int64_t next_step() const;
  bool done() const { return next_step() >= total_steps(); }
  /// One step: forward and backward of `accumulate` batches, then the optimizer. A step that loss scaling
  /// skipped does not advance the learning rate. Throws ulp::Error when the loss is not finite, with loss
  /// scaling when it is the last of TrainOptions::max_skips such steps in a row; weights and optimizer are as
  /// before the step then. Calls amp::adapt_threads() first.
  StepInfo step();
  /// To be called when the masks of a pruned graph (ulp::prune::set_mask) have changed since the trainer was
  /// made: pruned weights stay where they are. Throws ulp::Error where the graph had none then.
  void hold_masks();
  /// Training is over: parameters that processes share (ZeroStage::parameters) are whole from here on. All
  /// processes call it.
  void unshard();
  /// fp8 precisions with delayed scales: how the largest magnitudes of all processes become one before each
  /// update of the scales (amp::update_fp8). Task::group does it where nothing is given.
  void reduce_amaxes(amp::AmaxReduction reduce);
  /// Null: nobody. The observer must outlive its use; one with a state is there before resume().
  void observe(StepObserver* observer);

  /// Everything that the next step depends on, in one file, atomically. Of several processes all call it and
  /// rank 0 writes. `in_shares`: where processes share the optimizer's state, each writes its own to a file
  /// beside it, at the same time as the others; the file at `path` names these, and is written last.
  void save(const std::filesystem::path& path, bool in_shares = false) const;
  /// Continues where save() left off: the following steps give the same bits. Several processes may go on
  /// where another number of them left off, with batches that are as large together; random numbers of
  /// dropout are others then. Throws FileError for a damaged file (after which the trainer is not to be
  /// used), and ulp::Error naming the options in which the file's run was another one. How many losses in a
  /// row were not finite (TrainOptions::max_skips) is not in checkpoints: it is counted from 0 again.
  void resume(const std::filesystem::path& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::train
