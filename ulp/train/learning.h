// Learners (ulp/distill) as tasks of the training loop, and streams of data that are labelled in part.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/distill/distiller.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// Converts a batch to the form that a learner takes.
ULP_API distill::Batch distillation_batch(const TaskBatch& batch);

/// A task whose model is the learner, so that a checkpoint holds adapters and memories, too.
ULP_API Task learning_task(std::shared_ptr<distill::DistillationTask> learner,
                           std::unique_ptr<BatchStream> batches);

/// A distiller's setup with what follows from the data and the length of the run: the example, samples and batches. Student,
/// teacher and recipe are the caller's.
ULP_API distill::DistillerSetup distillation_setup(BatchStream& batches, const TrainOptions& options);

/// The stream with other targets: `targets[i]` of sample i (int64, one a sample), distill::kUnlabelled for none. Throws ulp::Error
/// for another number of them.
ULP_API std::unique_ptr<BatchStream> relabelled(std::unique_ptr<BatchStream> batches, at::Tensor targets);

/// Which of `samples` stay labelled, where a share in (0, 1] of them does: a function of the seed alone, at least one; bool
/// (samples).
ULP_API at::Tensor labelled_share(int64_t samples, double share, uint64_t seed);

/// Batches of both streams one behind the other in each batch; an epoch is one of `labelled`, the other stream starts again as
/// often as needed. Numbers of samples of `unlabelled` come behind those of `labelled`, and its targets are
/// distill::kUnlabelled.
ULP_API std::unique_ptr<BatchStream> joined(std::unique_ptr<BatchStream> labelled,
                                            std::unique_ptr<BatchStream> unlabelled);

}  // namespace ulp::train
