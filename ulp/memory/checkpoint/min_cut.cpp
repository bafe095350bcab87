#include "ulp/memory/checkpoint/min_cut.h"

#include <algorithm>

namespace ulp::memory {
namespace {
constexpr double kNothing = 1e-9;  ///< less is rounding
}

int MinCut::add_vertex() {
  out_.emplace_back();
  return static_cast<int>(out_.size()) - 1;
}

void MinCut::add_edge(int from, int to, double capacity) {
  if (capacity <= kNothing) return;
  out_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  out_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels() {
  level_.assign(out_.size(), -1);
  level_[kSource] = 0;
  std::vector<int> queue{kSource};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (int index : out_[static_cast<size_t>(queue[i])]) {
      const Edge& edge = edges_[static_cast<size_t>(index)];
      int& level = level_[static_cast<size_t>(edge.to)];
      if (level >= 0 || edge.capacity <= kNothing) continue;
      level = level_[static_cast<size_t>(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[kSink] >= 0;
}

double MinCut::push(int vertex, double flow) {
  if (vertex == kSink) return flow;
  const auto& out = out_[static_cast<size_t>(vertex)];
  for (size_t& i = next_[static_cast<size_t>(vertex)]; i < out.size(); ++i) {
    Edge& edge = edges_[static_cast<size_t>(out[i])];
    if (edge.capacity <= kNothing ||
        level_[static_cast<size_t>(edge.to)] != level_[static_cast<size_t>(vertex)] + 1)
      continue;
    const double pushed = push(edge.to, std::min(flow, edge.capacity));
    if (pushed <= kNothing) continue;
    edge.capacity -= pushed;
    edges_[static_cast<size_t>(out[i] ^ 1)].capacity += pushed;
    return pushed;
  }
  return 0;
}

std::vector<bool> MinCut::on_sink_side() {
  while (find_levels()) {
    next_.assign(out_.size(), 0);
    while (push(kSource, kInfinite) > kNothing) {
    }
  }
  std::vector<bool> sink(out_.size());
  for (size_t i = 0; i < out_.size(); ++i) sink[i] = level_[i] < 0;
  return sink;
}

}  // namespace ulp::memory
