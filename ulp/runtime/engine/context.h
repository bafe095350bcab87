// One caller of an engine: the memory that a run computes in. The engine's constants are shared by all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/runtime/plan/step_work.h"

namespace ulp::runtime {

class Engine;
class Model;

/// How a context runs.
struct ContextOptions {
  /// 0: one per core the process may use (usable_cores()). 1, the default, suits a service whose own threads
  /// share the cores. The calling thread is one of them; the others belong to all contexts of the process
  /// (PoolThreads::shared).
  int threads = 1;
  /// Splits the work instead of threads of this library (then `threads` is ignored); must outlive the
  /// context. Contexts may share one.
  const Parallel* parallel = nullptr;
  /// The most bytes that intermediates and scratch of a run may take. 0: what the engine was made with.
  size_t max_arena_bytes = 0;
  /// The threads beside the calling one are the context's own.
  bool own_threads = false;
};

/// Time spent in one step, for profiles.
struct StepProfile {
  std::string step, op;
  std::string attributes;  ///< as attributes_text() gives them
  std::string kernel, output_shape;
  double seconds = 0;
  StepWork work{};  ///< of the profiled batch, without weights of zero that the kernel leaves out
  std::string
      note{};  ///< why the kernel is this one, where that was a choice: "left dense: 1.08x slower at 4 rows"
};

/// Runs an engine with memory of its own. Make one for each thread that calls: they share the engine's packed
/// constants and nothing else, so any number of them run at the same time and give the same bits. A context
/// keeps what it needs of its engine alive; a call that meets another one on the same context throws. Every
/// member but assignment throws ulp::Error on a context that was moved from.
class ULP_API Context {
 public:
  explicit Context(const Engine& engine, const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  /// Sets free dimensions by name; those that are not named keep their sizes. A new context has the largest ones. What
  /// the engine needs for new sizes is made at their first use in any context, and kept. Throws ulp::Error for an unknown
  /// name and for a size outside the dimension's range; all sizes are then as before.
  void set_sizes(const std::map<std::string, int64_t>& sizes);
  /// The size of a free dimension. Throws ulp::Error for an unknown name.
  int64_t size(const std::string& name) const;
  /// What run() reads and writes at the present sizes, in order. Valid until the next set_sizes().
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;

  /// Of an engine whose runs continue each other (Plan::continued): how many rows of that dimension the runs so far have
  /// taken. Each run adds as many as the dimension's size; what it needs of them later stays in memory of the context. A
  /// run that would go beyond the largest size, or that has another batch than the one it continues, throws ulp::Error
  /// and changes nothing. 0 for other engines.
  int64_t position() const;
  /// Forgets all runs, or those behind an earlier position. Throws ulp::Error for a position that was not reached.
  void rewind(int64_t position = 0);

  /// Plans the arena for this batch now, so that the next run() of this batch or a smaller one does not
  /// allocate. For the present sizes.
  void reserve(int64_t batch);
  /// inputs[i] and outputs[i] hold batch * (elements per item) elements, dense, and do not overlap; outputs
  /// may be written early and hold intermediate values until run() returns. Throws ulp::Error on a wrong
  /// count, a null pointer, batch < 1, a batch too large for memory, an id outside its range, and while
  /// another thread runs this context. An id that a step of the plan made is found as it is used: outputs are
  /// written then, and hold no result. Does not allocate once this batch, or a larger one, has been run or
  /// reserved.
  void run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs);
  /// Runs the whole batch step by step with a clock around each. run() may cut a large batch into slices that
  /// stay in cache, so its time can be less than the sum.
  std::vector<StepProfile> profile(int64_t batch, std::span<const void* const> inputs,
                                   std::span<void* const> outputs);

  /// Bytes held for intermediates and scratch.
  size_t arena_bytes() const;
  /// Bytes held between runs that continue each other, for the batch of those so far: in attention of a text,
  /// two rows of kv_heads * depth numbers for each position that the largest size has. 0 before the first run
  /// and for other engines.
  size_t kept_bytes() const;
  int threads() const;

 private:
  friend class Engine;
  Context(std::shared_ptr<const Model> model, const ContextOptions& options);
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::runtime
