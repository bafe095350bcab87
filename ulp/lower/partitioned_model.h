// Running a model whose ops the engine has in part: engines for what it has, LibTorch for the rest.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp {

/// One piece of a model, and what it cost in a profile.
struct PartitionInfo {
  bool engine = false;
  int64_t nodes = 0;             ///< of the graph, or steps of the engine
  std::vector<std::string> why;  ///< LibTorch: the nodes that the engine does not have, with the reason
  std::vector<std::string> inputs, results;  ///< names of the values that pass in and out
  int64_t bytes = 0;                         ///< of these values in the profiled run
  double seconds = 0;                        ///< of the profiled run, with the copies in and out
};

/// A model in pieces that run one after the other, in eval mode and without gradients. Weights of LibTorch's
/// pieces are shared with the model it came from; engines hold those of the moment they were made. Train
/// first. One call at a time.
class ULP_API PartitionedModel {
 public:
  ~PartitionedModel();
  PartitionedModel(PartitionedModel&&) noexcept;
  PartitionedModel& operator=(PartitionedModel&&) noexcept;

  /// All result tensors, flattened in order; inputs as GraphModule::run takes them, brought to the captured
  /// dtypes. Throws ulp::Error as that does, for a batch of 0, and for ids outside their range.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);
  /// Runs once with a clock around each piece.
  std::vector<PartitionInfo> profile(const std::vector<at::Tensor>& inputs);
  /// The pieces without times: one means that the whole model runs in one place.
  std::vector<PartitionInfo> partitions() const;

 private:
  struct State;
  State& state() const;
  explicit PartitionedModel(std::unique_ptr<State> state);
  friend ULP_API PartitionedModel lower_partitioned(graph::GraphModule& model, const LowerOptions& options,
                                                    const runtime::EngineOptions& engine);
  std::unique_ptr<State> state_;
};

/// As lower(), for any captured model: nodes that have no lowering run in LibTorch, what lies between them
/// runs in engines. The results are what the engine's precision gives. Engines use LibTorch's threads unless
/// `engine` says how they split their work.
ULP_API PartitionedModel lower_partitioned(graph::GraphModule& model, const LowerOptions& options = {},
                                           const runtime::EngineOptions& engine = {});

/// The same of a model with free dimensions beside the batch, whose pieces take one size of each: the one
/// that it has in `examples`, a tensor for each input, or its largest where there are none. Throws ulp::Error
/// for an example without such a dimension, and for a size outside its range.
ULP_API PartitionedModel lower_partitioned(const std::shared_ptr<graph::GraphModule>& model,
                                           const std::vector<at::Tensor>& examples,
                                           const LowerOptions& options = {},
                                           const runtime::EngineOptions& engine = {});

}  // namespace ulp
