// A task of the training loop: a model, batches for it, how to run it and its loss. Classifying
// images or rows of arrays, predicting the next byte of a text and classifying texts are four such tasks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/export.h"
#include "ulp/distributed/data_parallel.h"
#include "ulp/io/dataset.h"
#include "ulp/memory/checkpoint/plan.h"
#include "ulp/models/image_model.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::graph {
class GraphModule;
}

namespace ulp::train {

/// One batch of any task.
struct TaskBatch {
  at::Tensor inputs;        ///< float (N, C, H, W), or tokens int64 (N, T)
  at::Tensor targets;       ///< int64: classes (N), or the token that follows each (N, T)
  at::Tensor samples = {};  ///< their numbers in the data set, int64 (N); undefined where nobody numbers them
};

/// Batches of one split of a data set. What comes is a function of seed and epoch alone, so that a restored
/// stream continues exactly.
class ULP_API BatchStream {
 public:
  virtual ~BatchStream();
  /// Nothing at the end of an epoch, after which the next call starts the next epoch.
  virtual std::optional<TaskBatch> next() = 0;
  virtual int64_t samples() const = 0;  ///< in the data set
  virtual int64_t batches() const = 0;  ///< in one epoch
  virtual int64_t epoch() const = 0;
  /// Where the stream stands, as text.
  virtual std::string state() const = 0;
  /// Takes that up again. Throws FileError for a state of other data or another batch size.
  virtual void restore(const std::string& state) = 0;
};

/// How a split is read.
struct ULP_API StreamOptions {
  int64_t batch = 128;
  bool shuffle = false;
  bool drop_last = false;  ///< leave out the last batch of an epoch when it is not full
  bool augment = false;    ///< images: random horizontal flips
  uint64_t seed = 0;
  /// Place among processes that train together: each batch is `batch` samples for each of them, and this
  /// one's are given.
  int64_t rank = 0, ranks = 1;

  /// For training: shuffled, full batches only.
  static StreamOptions training(int64_t batch, uint64_t seed, bool augment) {
    return {.batch = batch, .shuffle = true, .drop_last = true, .augment = augment, .seed = seed};
  }
  /// These options for a process of a group; null: a single one.
  StreamOptions among(const distributed::ProcessGroup* group) const;
};

/// Images, normalised by the data set's mean and std. Throws Error where BatchLoader does.
ULP_API std::unique_ptr<BatchStream> image_stream(const io::ImageDataset& data, const StreamOptions& options);

/// Makes a batch of the samples of these numbers.
using Gather = std::function<TaskBatch(std::span<const int64_t> samples)>;
/// A stream of the samples numbered from 0, gathered batch by batch.
ULP_API std::unique_ptr<BatchStream> sample_stream(int64_t samples, Gather gather,
                                                   const StreamOptions& options);

/// The first batch of a stream, put back to where it was.
ULP_API TaskBatch example_batch(BatchStream& batches);

/// A batch to logits (N, classes) or (N, T, classes).
using Forward = std::function<at::Tensor(const TaskBatch& batch)>;

/// Mean cross-entropy of logits (..., classes) against targets (...), in nats, computed in fp32.
ULP_API at::Tensor cross_entropy(const at::Tensor& logits, const TaskBatch& batch);

struct ShardedModel;

/// Everything a Trainer is given besides options. Any task whose loss is a mean over the batch fits.
struct Task {
  std::shared_ptr<torch::nn::Module> model;  ///< owns what forward runs
  Forward forward;                           ///< runs under the precision's autocast
  std::unique_ptr<BatchStream> batches;
  /// Scalar loss of the output of forward; runs outside of autocast.
  std::function<at::Tensor(const at::Tensor& output, const TaskBatch& batch)> loss = cross_entropy;
  /// Masks of another graph, of parameters that the model has under the same names, as of one that is quantized (prune::masks): held
  /// beside those that the model has itself.
  std::vector<prune::ParameterMask> masks = {};
  std::string description =
      {};  ///< model and data; a checkpoint continues a run of the same description only
  /// The processes that train together, each with its part of the batches; null: this one alone.
  std::shared_ptr<distributed::ProcessGroup> group = {};
  distributed::DataParallelOptions parallel = {};  ///< how they do
  /// Where each of them has a part of the model (sharded_task()): model and forward are the part then, and
  /// all read the same batches. Null: each has all of it.
  std::shared_ptr<ShardedModel> parted = {};
  /// The plan of what stays of the forward pass for the backward pass. The trainer captures the model, as
  /// fp8_task() does, and asks
  /// once, with layers of 8 bits made, in the precision and the mode of training. Empty: all stays as it is.
  std::function<memory::CheckpointPlan(const graph::GraphModule& model)> activations = {};
  /// Where the optimizer keeps its state. An optimizer that is told is a FusedOptimizer.
  amp::OffloadOptions offload = {};
};

/// Classification by an image network (images, or arrays in their shape). The network is laid out
/// channels_last.
ULP_API Task image_task(std::shared_ptr<models::ImageModel> model, std::unique_ptr<BatchStream> batches);

}  // namespace ulp::train
