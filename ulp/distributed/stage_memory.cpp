#include "ulp/distributed/stage_memory.h"

#include <algorithm>
#include <unordered_set>

#include "ulp/distributed/subgraphs.h"

namespace ulp::distributed {

namespace {

using memory::CostTable;

/// Bytes that parameters, buffers and constants take, by tensor; trained ones with all that belongs to them.
class AttributeBytes {
 public:
  AttributeBytes(const graph::Graph& graph, double optimizer_bytes)
      : graph_(graph), optimizer_bytes_(optimizer_bytes) {}

  /// Of those that no call before has read.
  int64_t add(const graph::Node& node) {
    int64_t bytes = 0;
    for (const graph::Value* value : node.reads()) {
      if (!is_attribute(value)) {
        if (is_view_of_attribute(*value->producer)) bytes += add(*value->producer);
        continue;
      }
      const at::Tensor tensor = graph_.attribute_tensor(value);
      if (!tensor.defined() || !seen_.insert(tensor.unsafeGetTensorImpl()).second) continue;
      const auto own = static_cast<double>(tensor.nbytes());
      bytes += static_cast<int64_t>(tensor.requires_grad() ? own * (2 + optimizer_bytes_) : own);
    }
    return bytes;
  }

 private:
  const graph::Graph& graph_;
  double optimizer_bytes_;
  std::unordered_set<const c10::TensorImpl*> seen_;
};

/// For each place between calls: bytes that cross it and that no backward of a call before it reads.
std::vector<int64_t> crossing_only(const CostTable& table) {
  std::vector<int> first_save(table.values.size(), table.size() + 1);
  for (int call = table.size() - 1; call >= 0; --call) {
    for (int value : table.calls[static_cast<size_t>(call)].saved) {
      const int base = table.values[static_cast<size_t>(value)].base;
      if (base >= 0) first_save[static_cast<size_t>(base)] = call;
    }
  }
  std::vector<int64_t> bytes(static_cast<size_t>(table.size()) + 1);
  for (size_t v = 0; v < table.values.size(); ++v) {
    const CostTable::Value& value = table.values[v];
    if (value.base != static_cast<int>(v)) continue;
    for (int cut = value.made + 1; cut <= std::min(value.last_read, first_save[v]); ++cut)
      bytes[static_cast<size_t>(cut)] += value.bytes;
  }
  return bytes;
}

}  // namespace

StageMemory::StageMemory(const graph::Graph& graph, const CostTable& table, double optimizer_bytes) {
  const std::vector<int64_t> unread = crossing_only(table);
  for (int begin = 0; begin < table.size(); ++begin) {
    std::vector<Need>& needs = needs_.emplace_back();
    AttributeBytes attributes(graph, optimizer_bytes);
    std::vector<bool> kept(table.values.size(), false);
    int64_t fixed = 0, saved = table.crossing[static_cast<size_t>(begin)], gradients = 0;
    for (int call = begin; call < table.size(); ++call) {
      const CostTable::Call& it = table.calls[static_cast<size_t>(call)];
      fixed += attributes.add(*table.order.calls[static_cast<size_t>(call)]);
      saved += it.inner_bytes;
      for (int value : it.saved) {
        const int base = table.values[static_cast<size_t>(value)].base;
        if (base < 0 || kept[static_cast<size_t>(base)]) continue;
        kept[static_cast<size_t>(base)] = true;
        const CostTable::Value& whole = table.values[static_cast<size_t>(base)];
        if (whole.made >= begin) saved += whole.bytes;  // what comes from before is among what crosses
      }
      gradients = std::max(gradients, table.gradients[static_cast<size_t>(call)]);
      needs.push_back({fixed + gradients, saved + unread[static_cast<size_t>(call) + 1]});
    }
  }
}

}  // namespace ulp::distributed
