// Another way to run a graph than node after node.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::graph {

class Program;

/// Runs the program of a GraphModule (GraphModule::run_with).
class Executor {
 public:
  virtual ~Executor() = default;
  /// Comes before the first run and with each GraphModule::recompile(). Throws ulp::Error for a graph that it
  /// cannot run; it then stays with the one before.
  virtual void prepare(std::shared_ptr<const Graph> graph, std::shared_ptr<const Program> program) = 0;
  /// As Program::run().
  virtual c10::IValue run(const std::vector<at::Tensor>& inputs, bool training) = 0;
};

}  // namespace ulp::graph
