// What any run of consecutive calls needs of memory in training; internal to the room.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/memory/checkpoint/cost_table.h"

namespace ulp::distributed {

class StageMemory {
 public:
  StageMemory(const graph::Graph& graph, const memory::CostTable& table, double optimizer_bytes);

  /// Of the calls [begin, end) that hold `held` micro-batches at once.
  int64_t bytes(int begin, int end, int64_t held) const {
    const Need& need = needs_[static_cast<size_t>(begin)][static_cast<size_t>(end - begin - 1)];
    return need.once + held * need.each;
  }

 private:
  struct Need {
    int64_t once = 0;  ///< parameters, their gradients and states, gradients of activations
    int64_t each = 0;  ///< what the backward pass of a micro-batch reads
  };
  std::vector<std::vector<Need>> needs_;  ///< by begin, by the number of calls less one
};

}  // namespace ulp::distributed
