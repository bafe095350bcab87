// Gradient hooks and custom autograd functions that forward sets: a graph would lose them, so capture refuses them by
// name.
#pragma once

#include <memory>
#include <vector>

#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// The autograd nodes behind the results of a call, as they are when it returns: an in-place op behind it gives its
/// tensor another one, and the hooks stay with the first. Null where nothing records gradients.
std::shared_ptr<const GradFns> grad_fns_of(const std::vector<c10::IValue>& outputs);

/// The name of the torch::autograd::Function behind the first of these tensors whose autograd node no call of
/// the trace has given: a function that hands its argument on (mark_dirty()) makes no call. Empty for none.
std::string custom_function_behind(const c10::IValue& value, const Trace& trace);

/// Throws ulp::Error naming the first call whose result has a gradient hook, or keeps its gradient. `nodes`: of each
/// call the node of the graph, null where the graph has none, and then no gradient passes.
void refuse_hooks(const Trace& trace, const std::vector<const Node*>& nodes);

/// The hooks that parameters have before a run. Those that the run adds go on destruction.
class ParameterHooks {
 public:
  explicit ParameterHooks(const Subject& subject);
  ~ParameterHooks();
  ParameterHooks(const ParameterHooks&) = delete;
  ParameterHooks& operator=(const ParameterHooks&) = delete;

  /// Throws ulp::Error naming the first parameter that has more of them now.
  void refuse_new() const;

 private:
  const Subject& subject_;
  std::vector<size_t> before_;
};

}  // namespace ulp::graph
