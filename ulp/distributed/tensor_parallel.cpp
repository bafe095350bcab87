#include "ulp/distributed/tensor_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/distributed/layer_splitter.h"
#include "ulp/distributed/named_tensors.h"
#include "ulp/distributed/same_model.h"

namespace ulp::distributed {

namespace {

constexpr const char* kTensorParallelWhere = "distributed.TensorParallel";

/// Nodes in modules that patterns name.
std::set<const graph::Node*> skipped_nodes(const graph::Graph& graph,
                                           const std::vector<std::string>& patterns) {
  std::set<const graph::Node*> skipped;
  for (const std::string& pattern : patterns) {
    const size_t before = skipped.size();
    for (const auto& node : graph.nodes())
      if (matches_path(pattern, node->scope)) skipped.insert(node.get());
    if (skipped.size() == before)
      fail(kTensorParallelWhere, "expected skip_modules to name modules of the model, got '", pattern, "'");
  }
  return skipped;
}

/// Every rank's generator goes on from rank 0's state.
void share_random_state(ProcessGroup& group, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state().to(device);
  group.broadcast(state).wait();
  generator.set_state(state.cpu());
}

/// What is gathered from each rank: its parts, and from rank 0 what all ranks have.
std::vector<std::vector<std::string>> taken(const graph::GraphModule& module,
                                            const std::vector<NamedSplit>& splits, int ranks) {
  std::vector<std::string> parts, all;
  for (const NamedSplit& one : splits) parts.push_back(one.name);
  for (const auto& [name, tensor] : named_tensors(module)) all.push_back(name);
  std::vector<std::vector<std::string>> names(static_cast<size_t>(ranks), parts);
  names[0] = all;
  return names;
}

}  // namespace

TensorParallel::TensorParallel(const std::shared_ptr<graph::GraphModule>& captured,
                               std::shared_ptr<ProcessGroup> group, const TensorParallelOptions& options,
                               graph::PassReport* report)
    : group_(std::move(group)) {
  if (!captured) fail(kTensorParallelWhere, "expected a captured model, got null");
  if (!group_) fail(kTensorParallelWhere, "expected a process group, got none");
  if (!captured->graph().free.empty())
    fail(kTensorParallelWhere, "expected a model captured without free dimensions, got '",
         captured->graph().free[0].name, "'");
  check_same_model(*group_, *captured);
  broadcast_state(*group_, *captured);
  const auto graph = captured->graph().clone();
  graph::canonicalize(*graph);
  if (!graph->attributes().empty())
    share_random_state(*group_, graph->attributes().front().second.tensor.device());
  const std::set<const graph::Node*> skipped = skipped_nodes(*graph, options.skip_modules);
  graph::PassReport result{"tensor_parallel", {}, {}};
  LayerSplitter splitter(*graph, group_, result);
  splitter.split_layers(skipped);
  if (options.vocabulary)
    result_split_ = splitter.split_vocabulary(skipped, options.least_vocabulary, options.gather_result);
  splitter.report_whole();
  splits_ = splitter.splits();
  if (!result.changed())
    fail(kTensorParallelWhere, "expected a model with layers that can be split among ", group_->size(),
         " processes, got none", result.near_misses.empty() ? "" : "; " + result.near_misses.front());
  graph->remove_dead();
  module_ = std::make_shared<graph::GraphModule>(graph, captured->notes());
  module_->train(captured->is_training());
  parts_.emplace(group_, module_, taken(*module_, splits_, group_->size()), splits_);
  if (report != nullptr) *report = std::move(result);
}

std::vector<at::Tensor> TensorParallel::own_parameters() const {
  std::vector<at::Tensor> found;
  for (const auto& one : module_->named_parameters()) {
    const bool split = std::ranges::any_of(splits_, [&](const NamedSplit& s) { return s.name == one.key(); });
    if (split || group_->rank() == 0) found.push_back(one.value());
  }
  return found;
}

}  // namespace ulp::distributed
