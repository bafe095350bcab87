// Tensor parallel training: each process computes with a part of each large matrix of a captured model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distributed/model_parts.h"
#include "ulp/distributed/process_group.h"
#include "ulp/distributed/split.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::distributed {

/// Options: the layers that are split.
struct ULP_API TensorParallelOptions {
  /// Embeddings by rows, and the layer that makes the model's result by outputs, where these are tokens.
  bool vocabulary = true;
  int64_t least_vocabulary = 1024;  ///< tables and results with fewer rows stay whole
  /// false: the result stays in parts, as split_cross_entropy() takes it, where its layer is split.
  bool gather_result = true;
  std::vector<std::string> skip_modules =
      {};  ///< paths of modules that stay whole; '*' is any run of characters
};

/// A copy of a captured model of which each rank has parts.
///
///   auto captured = ulp::capture(model, {tokens});
///   distributed::TensorParallel parallel(captured, group);
///   torch::optim::AdamW optimizer(parallel.module().parameters(), 1e-3);
///   loss(parallel.module().forward(tokens), targets).backward();     // the same batch on every rank
///   optimizer.step();
///   parallel.gather(rank == 0 ? captured.get() : nullptr);           // whole weights under their names
///
/// Linear layers that follow one another with nothing but pointwise ops, attention by heads and reshapes between them are
/// split together: those before by outputs, the last by inputs. Forward and backward then cost one sum over the ranks
/// each. Numbers that do not divide are shared out unevenly (Split). All else is computed by every rank, and is the same
/// on all of them. Results and gradients are those of one process up to the order of summation.
///
/// Dropout of values that all ranks have draws the same numbers everywhere; that of parts draws other numbers on each
/// rank, and so not those of one process. All ranks begin with rank 0's weights and the state of its random generator.
class ULP_API TensorParallel {
 public:
  /// All ranks call it with the same model. `report` receives what was split and what not and why. Throws ulp::Error for
  /// null, models that differ, a skip pattern that matches no module, a graph with free dimensions beside the batch, and
  /// a model of which nothing can be split among so many ranks.
  TensorParallel(const std::shared_ptr<graph::GraphModule>& captured, std::shared_ptr<ProcessGroup> group,
                 const TensorParallelOptions& options = {}, graph::PassReport* report = nullptr);

  /// Parameters keep their names; split ones are the rank's part, with memory of its own.
  graph::GraphModule& module() const { return *module_; }
  const std::shared_ptr<graph::GraphModule>& shared_module() const { return module_; }
  const ProcessGroup& group() const { return *group_; }
  const std::vector<NamedSplit>& splits() const { return splits_; }
  /// How the result is split; nothing where every rank has all of it.
  const std::optional<Split>& result_split() const { return result_split_; }

  /// Copies parameters and buffers into `whole` on rank 0, by their names, split ones from all ranks; null on the others.
  void gather(torch::nn::Module* whole) const { parts().gather(whole); }
  /// Gathers and scatters weights and optimizer states, for checkpoints.
  const ModelParts& parts() const { return *parts_; }

  /// Parameters that count on this rank when something is added up over all of them: its parts, and on rank 0 what all
  /// ranks have.
  std::vector<at::Tensor> own_parameters() const;

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<graph::GraphModule> module_;
  std::vector<NamedSplit> splits_;
  std::optional<Split> result_split_;
  std::optional<ModelParts> parts_;
};

}  // namespace ulp::distributed
