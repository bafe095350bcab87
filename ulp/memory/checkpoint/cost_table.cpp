#include "ulp/memory/checkpoint/cost_table.h"

#include <ATen/core/function_schema.h>

#include <algorithm>

namespace ulp::memory {
namespace {

using graph::Node;

template <typename Map, typename Key, typename Value>
Value find_or(const Map& map, const Key& key, Value other) {
  const auto found = map.find(key);
  return found == map.end() ? other : static_cast<Value>(found->second);
}

bool runs_once(const Node& node) {
  return node.kind() == Node::Kind::module || node.schema().is_mutable();
}

int64_t trained_bytes(const at::Tensor& tensor) {
  return tensor.requires_grad() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

CostTable::CostTable(const graph::Graph& graph, const Costs& costs) : order(graph) {
  std::unordered_map<const graph::Value*, int> number;
  const NodeCost nothing;
  for (int i = 0; i < static_cast<int>(order.calls.size()); ++i) {
    const Node& node = *order.calls[static_cast<size_t>(i)];
    const auto found = costs.nodes.find(&node);
    const NodeCost& cost = found == costs.nodes.end() ? nothing : found->second;
    Call call{cost.seconds, cost.inner_seconds, cost.inner_bytes, runs_once(node)};
    for (const graph::Value* value : node.reads()) {
      if (value->producer->kind() == Node::Kind::attribute)
        call.parameter_bytes += trained_bytes(graph.find_attribute(value->producer->target())->tensor);
      if (const int known = find_or(number, value, -1); known >= 0) call.reads.push_back(known);
    }
    for (const auto& output : node.outputs()) {
      const int index = number[output.get()] = static_cast<int>(values.size());
      const graph::Value* whole =
          find_or(costs.view_of, output.get(), static_cast<const graph::Value*>(nullptr));
      const int base = whole ? find_or(number, whole, -1) : index;
      const int64_t bytes = !whole      ? find_or(costs.bytes, output.get(), int64_t{0})
                            : base >= 0 ? values[static_cast<size_t>(base)].bytes
                                        : 0;
      const bool has_grad = !output->meta || at::isFloatingType(output->meta->dtype);
      values.push_back({output.get(), i, -1, base, bytes, has_grad});
      call.results.push_back(index);
    }
    for (const graph::Value* value : cost.saved) {
      if (const int known = find_or(number, value, -1); known >= 0) call.saved.push_back(known);
    }
    calls.push_back(std::move(call));
  }
  const auto read_at = [&](int value, int call) {
    values[static_cast<size_t>(value)].last_read =
        std::max(values[static_cast<size_t>(value)].last_read, call);
    const int base = values[static_cast<size_t>(value)].base;
    if (base >= 0)
      values[static_cast<size_t>(base)].last_read =
          std::max(values[static_cast<size_t>(base)].last_read, call);
  };
  for (int i = 0; i < size(); ++i) {
    for (int value : calls[static_cast<size_t>(i)].reads) read_at(value, i);
  }
  if (const Node* output = graph.output_node()) {
    for (const graph::Value* value : output->reads()) {
      if (const int known = find_or(number, value, -1); known >= 0) read_at(known, size());
    }
  }
  for (int i = 0; i <= size(); ++i) crossing.push_back(live(i, false));
  for (int i = 0; i < size(); ++i) gradients.push_back(gradients_at(i));
}

int64_t CostTable::live(int call, bool with_gradients) const {
  int64_t bytes = 0;
  for (int v = 0; v < static_cast<int>(values.size()); ++v) {
    const Value& value = values[static_cast<size_t>(v)];
    const bool in_time = with_gradients ? value.made <= call : value.made < call;
    if (value.base == v && in_time && value.last_read >= call && (value.has_grad || !with_gradients))
      bytes += value.bytes;
  }
  return bytes;
}

int64_t CostTable::gradients_at(int call) const {
  const Call& it = calls[static_cast<size_t>(call)];
  int64_t bytes = live(call, true) + it.inner_bytes + it.parameter_bytes;
  std::vector<int> bases;
  for (int value : it.reads) bases.push_back(values[static_cast<size_t>(value)].base);
  std::ranges::sort(bases);
  bases.erase(std::unique(bases.begin(), bases.end()), bases.end());
  for (int base : bases) {
    if (base < 0) continue;
    const Value& value = values[static_cast<size_t>(base)];
    if (value.has_grad && value.last_read > call) bytes += value.bytes;
  }
  return bytes;
}

}  // namespace ulp::memory
