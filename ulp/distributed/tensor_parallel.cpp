#include "ulp/distributed/tensor_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/path_pattern.h"
#include "ulp/distributed/layer_splitter.h"
#include "ulp/distributed/mail.h"
#include "ulp/distributed/named_tensors.h"
#include "ulp/distributed/same_model.h"

namespace ulp::distributed {

namespace {

constexpr const char* kWhere = "distributed.TensorParallel";
constexpr int kGatherWay = 0;

/// Nodes in modules that patterns name.
std::set<const graph::Node*> skipped_nodes(const graph::Graph& graph,
                                           const std::vector<std::string>& patterns) {
  std::set<const graph::Node*> skipped;
  for (const std::string& pattern : patterns) {
    const size_t before = skipped.size();
    for (const auto& node : graph.nodes())
      if (matches_path(pattern, node->scope)) skipped.insert(node.get());
    if (skipped.size() == before)
      fail(kWhere, "expected skip_modules to name modules of the model, got '", pattern, "'");
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

}  // namespace

TensorParallel::TensorParallel(const std::shared_ptr<graph::GraphModule>& captured,
                               std::shared_ptr<ProcessGroup> group, const TensorParallelOptions& options,
                               graph::PassReport* report)
    : group_(std::move(group)) {
  if (!captured) fail(kWhere, "expected a captured model, got null");
  if (!group_) fail(kWhere, "expected a process group, got none");
  if (!captured->graph().free.empty())
    fail(kWhere, "expected a model captured without free dimensions, got '", captured->graph().free[0].name,
         "'");
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
    fail(kWhere, "expected a model with layers that can be split among ", group_->size(),
         " processes, got none", result.near_misses.empty() ? "" : "; " + result.near_misses.front());
  graph->remove_dead();
  module_ = std::make_shared<graph::GraphModule>(graph, captured->notes());
  module_->train(captured->is_training());
  if (report != nullptr) *report = std::move(result);
}

void TensorParallel::gather(torch::nn::Module* whole) const {
  constexpr const char* kGather = "distributed.TensorParallel.gather";
  check_gathers_on_root(kGather, *group_, whole);
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> own, targets;
  for (const auto& [name, tensor] : named_tensors(*module_)) own.emplace(name, tensor);
  if (whole == nullptr) {
    std::vector<at::Tensor> parts;
    for (const NamedSplit& one : splits_) parts.push_back(own.at(one.name));
    Mail to_root(*group_, 0, kGatherWay, parts.front().device());
    to_root.send(parts);
    to_root.settle();
    return;
  }
  for (const auto& [name, tensor] : named_tensors(*whole)) targets.emplace(name, tensor);
  for (const auto& [name, tensor] : own)
    if (!targets.contains(name)) fail(kGather, "expected a model with '", name, "', got one without");
  for (int rank = 0; rank < group_->size(); ++rank) {
    std::vector<at::Tensor> parts;
    if (rank > 0)
      parts = Mail(*group_, rank, kGatherWay, own.begin()->second.device()).receive(splits_.size());
    for (size_t i = 0; i < splits_.size(); ++i) {
      const NamedSplit& one = splits_[i];
      one.split.put_part(targets.at(one.name), rank > 0 ? parts[i] : own.at(one.name), rank, group_->size());
      if (rank == 0) own.erase(one.name);
    }
  }
  for (const auto& [name, tensor] : own)
    if (!targets.at(name).is_same(tensor)) targets.at(name).copy_(tensor);
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
