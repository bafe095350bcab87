// Tells about each top-level op of a thread, forward and backward, while it lives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ulp/amp/watch/watch_names.h"
#include "ulp/amp/watch/watch_summary.h"

namespace ulp::amp {

/// One call that has just returned.
struct OpCall {
  OpLocation place;                                  ///< output is not set
  std::vector<at::Tensor> inputs, outputs;           ///< defined tensors only, those in lists too
  bool in_place = false;                             ///< wrote to an input: what that held before is gone
  bool given_nonfinite = false;                      ///< had an infinite or NaN number among its arguments
  bool returns_memory = false;                       ///< its result holds whatever was there before
  std::chrono::steady_clock::time_point began = {};  ///< its own start, behind what recording it took
  double seconds = 0;                                ///< with the ops it is made of
};

/// Gets the calls. Runs inside the profiler's callback, with recording off.
class OpSink {
 public:
  virtual ~OpSink() = default;
  virtual void visit(const OpCall& call) = 0;
};

/// Registers a callback for this thread and removes it on destruction. In the forward pass it reports the ops
/// that user code calls, not those they are made of. In the backward pass it reports what each autograd node
/// calls, named by the forward op that made the node: both carry autograd's sequence numbers.
class OpRecorder final {
 public:
  /// Throws ulp::Error when there is one on this thread already.
  OpRecorder(ModulePaths& paths, OpSink& sink);
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

 private:
  struct Frame;
  struct Callbacks;
  /// Autograd nodes with sequence numbers in [begin, end) were made by this op.
  struct ForwardCall {
    uint64_t begin, end;
    OpLocation place;
  };

  void start(const at::RecordFunction& function, Frame& frame);
  void finish(const at::RecordFunction& function, Frame& frame);
  void name(OpCall& call) const;
  const OpLocation* forward_place(int64_t sequence) const;

  ModulePaths& paths_;
  OpSink& sink_;
  uint64_t handle_ = 0;
  int depth_ = 0;                          ///< of ops within ops
  const std::string* backward_ = nullptr;  ///< name of the autograd node that is running
  int64_t sequence_ = -1;                  ///< its sequence number
  std::vector<ForwardCall> forward_;
  std::map<std::string, int32_t> occurrences_;
};

}  // namespace ulp::amp
