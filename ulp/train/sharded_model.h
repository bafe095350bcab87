// Training of a model of which each of several processes has a part: split layers or stages of a pipeline.
#pragma once

#include <array>
#include <filesystem>
#include <optional>

#include "ulp/base/byte_size.h"
#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/distributed/pipeline.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/train/model_part.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::train {

/// The work that several processes share out.
enum class Parallel : uint8_t {
  data,      ///< the batches: each has a model of its own
  tensor,    ///< the large matrices of the model
  pipeline,  ///< the layers of the model
};

/// How they do.
struct ULP_API ParallelOptions {
  Parallel parallel = Parallel::data;
  distributed::PipelineOptions pipeline = {};
  /// Bytes that each process may use for its stage: layers are placed so that they fit. Nothing: balanced by
  /// times alone.
  std::optional<ByteSize> stage_memory = {};

  void visit_fields(FieldVisitor& visitor);
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// The task with the part of its model that this process of Task::group has; every process reads the same
/// batches. Stages of a pipeline are balanced by times that rank 0 measures on a micro-batch in the precision
/// of `training`, and fit in ParallelOptions::stage_memory with its optimizer; where `resumed` is a
/// checkpoint of so many stages, they are its stages: the run goes on bit for bit. `report` (may be null)
/// receives which layers are split, or the stages. Throws ulp::Error for a task without several processes, a
/// model that is neither captured nor an image or text network, and as TensorParallel and Pipeline do;
/// FileError for a file that is no checkpoint.
ULP_API Task sharded_task(Task task, const ParallelOptions& options, const TrainOptions& training,
                          graph::PassReport* report = nullptr, const std::filesystem::path& resumed = {});

}  // namespace ulp::train

template <>
struct ulp::EnumNames<ulp::train::Parallel> {
  using enum train::Parallel;
  static constexpr std::array<Word<train::Parallel>, 3> list = {
      {{data, "data", "the batches"},
       {tensor, "tensor", "the matrices of the model"},
       {pipeline, "pipeline", "the layers of the model"}}};
};
