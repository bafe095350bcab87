// The minimum cut of a small directed graph, by Dinic's algorithm.
#pragma once

#include <cstddef>
#include <vector>

namespace ulp::memory {

/// Vertices are numbers from 0; 0 is the source and 1 the sink.
class MinCut {
 public:
  static constexpr double kInfinite = 1e30;
  static constexpr int kSource = 0, kSink = 1;

  int add_vertex();
  void add_edge(int from, int to, double capacity);
  /// For each vertex whether it is on the sink's side of the cut of least capacity nearest to the source.
  std::vector<bool> on_sink_side();

 private:
  struct Edge {
    int to;
    double capacity;
  };
  bool find_levels();
  double push(int vertex, double flow);
  std::vector<Edge> edges_;  ///< an edge and its opposite one lie side by side
  std::vector<std::vector<int>> out_ = std::vector<std::vector<int>>(2);
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace ulp::memory
