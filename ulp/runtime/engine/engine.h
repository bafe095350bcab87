// Runs a plan on this machine: packs constants once, plans one arena for each context, then computes without allocating.
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
#include "ulp/runtime/engine/context.h"
#include "ulp/runtime/ops/depth_first.h"
#include "ulp/runtime/ops/sparse_weights.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// How an engine runs.
struct EngineOptions {
  int threads = 0;  ///< of the engine's own context; 0: one per core the process may use
  /// Kernel family by name ("portable", "avx2", ...); empty: ULP_ISA or the best there is.
  std::string isa{};
  /// Splits the work instead of threads of this library (then `threads` is ignored); must outlive the
  /// engine.
  const Parallel* parallel = nullptr;
  /// The most bytes that packed constants and tables may take, so that a small file cannot take much memory.
  /// 0: four times the plan's constants and 256 MiB.
  size_t max_constant_bytes = 0;
  /// The most bytes that intermediates and scratch of a run may take, in each context. 0: the memory of the
  /// machine.
  size_t max_arena_bytes = 0;
  /// What to do with weights of zero.
  SparseWeights sparse = SparseWeights::measure;
  /// What to do with convolutions that could run together, some rows at a time.
  DepthFirst blocks = DepthFirst::measure;
  /// Above 0: convolutions and linear layers in f32 whose error in bf16 is no more than this are timed both ways and run in
  /// bf16 where that is at least 1.1 times as fast. The error is the root mean square of what rounding changes, relative to
  /// that of the result, for inputs of mean 0 (kernels::narrow_error(): 0.002 to 0.003 as a rule); inputs that nearly cancel
  /// lose more. Which layers these are depends on the machine and the number of items. Layers that run in blocks stay as
  /// they are. Profiles say which, and why others did not.
  double error_budget = 0;
  /// After so much time of the loading thread no further layer is timed: those left run as they come. 0 measures none.
  double max_measuring_seconds = 5;
  /// A file of what was found on this machine where something is timed: layers that it knows are not measured
  /// again, which makes loading quicker and alike; others are measured and added. It is made where there is none.
  /// Empty: no file.
  std::filesystem::path sparse_table{};
  /// The engine's own context shares no threads with other engines and contexts.
  bool own_threads = false;
};

/// One loaded model: its constants, packed once, and a context of its own that run() uses. For several callers
/// at the same time make a Context of the engine for each: here a call that meets another one throws. Every
/// member but assignment throws ulp::Error on an engine that was moved from.
/// A child made by fork() has none of the pool's threads: engines that were made before run on the calling
/// thread alone.
class ULP_API Engine {
 public:
  explicit Engine(const std::filesystem::path& path, const EngineOptions& options = {});
  explicit Engine(const Plan& plan, const EngineOptions& options = {});
  /// The bytes of an engine file, which are not needed afterwards.
  explicit Engine(std::span<const std::byte> file, const EngineOptions& options = {});
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// The dimensions beside the batch that set_sizes() sets, in order; none for most plans.
  const std::vector<DynamicDimension>& free() const;
  /// Which batch sizes run() takes; without bounds for most models.
  const BatchRange& batch_range() const;
  /// The one of them along which runs continue each other (Context::position); empty where none do.
  const std::string& decoding_dimension() const;
  /// The sizes of the free dimensions in inputs of these shapes, for set_sizes(). Throws ulp::Error naming the input for
  /// another number of inputs or of dimensions, for two places that disagree, and for a size outside its range.
  std::map<std::string, int64_t> sizes_for(std::span<const std::vector<int64_t>> shapes) const;
  /// Descriptions of what run() reads and writes, in order, at the present sizes. Images are passed in plain NCHW order unless the
  /// plan says otherwise; layout changes are steps of the plan.
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;

  /// As Context has them, on the engine's own context.
  void set_sizes(const std::map<std::string, int64_t>& sizes);
  int64_t position() const;
  void rewind(int64_t position = 0);
  void reserve(int64_t batch);
  void run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs);
  std::vector<StepProfile> profile(int64_t batch, std::span<const void* const> inputs,
                                   std::span<void* const> outputs);

  /// Bytes that the engine's own context holds for intermediates and scratch.
  size_t arena_bytes() const;
  /// Bytes of the constants that were packed (without packing's padding); shared by all contexts.
  size_t constant_bytes() const;
  int threads() const;
  /// The kernel family in use.
  std::string isa() const;

 private:
  friend class Context;
  Engine(std::shared_ptr<const Model> model, const EngineOptions& options);
  const std::shared_ptr<const Model>& model() const;
  Context& own();
  const Context& own() const;

  std::shared_ptr<const Model> model_;
  Context own_;
};

}  // namespace ulp::runtime
