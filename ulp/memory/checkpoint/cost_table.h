// Graph and costs as numbered lists, for those who search plans.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/memory/checkpoint/call_order.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::memory {

/// Calls and values by number. Inputs of the graph are no values here: they are there anyway.
struct CostTable {
  struct Value {
    const graph::Value* value = nullptr;
    int made = 0;  ///< the call that makes it
    int last_read =
        -1;  ///< the last call that reads it or a view of it; the number of calls for results of the graph
    int base = 0;  ///< the value whose memory it is a view of; its own number if it is none; -1: of an input
    int64_t bytes = 0;      ///< of the memory, also of a view
    bool has_grad = false;  ///< its numbers can have gradients
  };
  struct Call {
    double seconds = 0, inner_seconds = 0;
    int64_t inner_bytes = 0;
    bool once = false;            ///< it must not run twice
    int64_t parameter_bytes = 0;  ///< of those that it reads
    std::vector<int> reads = {}, results = {}, saved = {};
  };
  CostTable(const graph::Graph& graph, const Costs& costs);

  CallOrder order;
  std::vector<Value> values;
  std::vector<Call> calls;
  int size() const { return static_cast<int>(calls.size()); }
  /// For each call, and behind the last one: bytes of values made before it, and read by it or later, each
  /// memory once.
  std::vector<int64_t> crossing;
  /// For each call: bytes of gradients while the backward is there. Of what it makes, of what it reads (where
  /// others read it, too, the sum so far and its own part), of what goes past it, of its casts and of its
  /// parameters, which are added to those that are there.
  std::vector<int64_t> gradients;

 private:
  int64_t live(int call, bool with_gradients) const;
  int64_t gradients_at(int call) const;
};

}  // namespace ulp::memory
