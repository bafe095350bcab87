// Watches LibTorch's allocators while a model trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ulp/base/export.h"
#include "ulp/memory/predict/recording.h"

namespace torch::nn {
class Module;
}

namespace ulp::memory {

/// While it lives, allocations of this thread (and of the threads that LibTorch starts work on for it) are
/// recorded. As measure::MemoryMeter it does not nest with LibTorch's profiler, nor with a meter. The caller
/// says what it is doing:
///
///   MemoryRecorder recorder;
///   auto model = make();                  // Phase::setup
///   recorder.watch(*model);
///   for each step:
///     recorder.enter(Phase::data);        // a batch
///     recorder.enter(Phase::forward);     // model and loss
///     recorder.enter(Phase::backward);
///     recorder.enter(Phase::step);        // the optimizer
///   Recording recording = recorder.finish();
class ULP_API MemoryRecorder {
 public:
  MemoryRecorder();
  ~MemoryRecorder();
  MemoryRecorder(const MemoryRecorder&) = delete;
  MemoryRecorder& operator=(const MemoryRecorder&) = delete;

  /// Whose parameters and gradients are told apart from other memory; it must live until finish(). Storages
  /// of the model that are older than the recorder count as made now.
  void watch(torch::nn::Module& model);
  /// Begins a phase.
  void enter(Phase phase);
  /// Ends the recording, before anything is given back. The recorder sees nothing more.
  Recording finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::memory
