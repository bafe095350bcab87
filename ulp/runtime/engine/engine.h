// Runs a plan on this machine: packs constants once, plans one arena, then computes without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// How an engine runs.
struct EngineOptions {
  int threads = 0;  ///< 0: one per core the process may use
  /// Kernel family by name ("portable", "avx2", ...); empty: ULP_ISA or the best there is.
  std::string isa{};
  /// Splits the work instead of a pool of the engine's own (then `threads` is ignored); must outlive the
  /// engine.
  const Parallel* parallel = nullptr;
  /// The most bytes that packed constants and tables may take, so that a small file cannot take much memory.
  /// 0: four times the plan's constants and 256 MiB.
  size_t max_constant_bytes = 0;
  /// The most bytes that intermediates and scratch of a run may take. 0: the memory of the machine.
  size_t max_arena_bytes = 0;
};

/// Time spent in one step, for profiles.
struct StepProfile {
  std::string step, op;
  std::string attributes;  ///< as attributes_text() gives them
  std::string kernel, output_shape;
  double seconds = 0;
};

/// One loaded model. Use one Engine per thread of callers (they share nothing): a call that meets another one
/// throws. Every member but assignment throws ulp::Error on an engine that was moved from.
/// A child made by fork() has none of the pool's threads: make its engines after the fork.
class ULP_API Engine {
 public:
  explicit Engine(const std::filesystem::path& path, const EngineOptions& options = {});
  explicit Engine(const Plan& plan, const EngineOptions& options = {});
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// Descriptions of what run() reads and writes, in order. Images are passed in plain NCHW order unless the
  /// plan says otherwise; layout changes are steps of the plan.
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;

  /// Plans the arena for this batch now, so that the next run() of this batch or a smaller one does not
  /// allocate.
  void reserve(int64_t batch);
  /// inputs[i] and outputs[i] hold batch * (elements per item) elements, dense, and do not overlap; outputs
  /// may be written early and hold intermediate values until run() returns. Throws ulp::Error on a wrong
  /// count, a null pointer, batch < 1, a batch too large for memory, an id outside its table, and while
  /// another thread runs this engine. Does not allocate once this batch, or a larger one, has been run or
  /// reserved.
  void run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs);

  /// Bytes held for intermediates and scratch, and of the constants that were packed (without packing's
  /// padding).
  size_t arena_bytes() const;
  size_t constant_bytes() const;
  int threads() const;
  /// The kernel family in use.
  std::string isa() const;
  /// Runs the whole batch step by step with a clock around each. run() may cut a large batch into slices that
  /// stay in cache, so its time can be less than the sum.
  std::vector<StepProfile> profile(int64_t batch, std::span<const void* const> inputs,
                                   std::span<void* const> outputs);

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::runtime
