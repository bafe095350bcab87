#include "ulp/amp/watch/watch_recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/graph/capture/trace.h"
#include "ulp/graph/graph_module.h"

namespace ulp::amp {

namespace {

thread_local OpRecorder* current_recorder = nullptr;

std::vector<at::Tensor> tensors_of(c10::ArrayRef<const c10::IValue> values) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : values) {
    graph::for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) out.push_back(tensor);
    });
  }
  return out;
}

bool is_nonfinite(const c10::IValue& value) {
  return value.isDouble() && !std::isfinite(value.toDouble());
}

/// aten::empty, aten::detach_ and their like, whose results hold whatever was there.
bool returns_memory(const std::string& op) {
  return op == "aten::detach_" || op.starts_with("aten::empty") || op.starts_with("aten::new_empty") ||
         op == "aten::resize_";
}

}  // namespace

/// Lives from an op's start to its end, also when the kernel throws.
struct OpRecorder::Frame : at::ObserverContext {
  explicit Frame(OpRecorder& recorder)
      : recorder(recorder),
        depth(recorder.depth_),
        backward(recorder.backward_),
        sequence(recorder.sequence_) {}
  ~Frame() override {
    if (current_recorder != &recorder) return;  // outlived its step: an op that a step was ended in
    recorder.depth_ = depth;
    recorder.backward_ = backward;
    recorder.sequence_ = sequence;
  }

  OpRecorder& recorder;
  int depth;  // what to restore
  const std::string* backward;
  int64_t sequence;
  std::string backward_name;  // of this frame, when it is an autograd node
  bool reported = false;
  OpCall call;
  size_t returns = 0;
  uint64_t first_sequence = 0;
};

struct OpRecorder::Callbacks {
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    if (!current_recorder) return nullptr;
    const bool op = function.operator_name().has_value();
    // Ranges that users mark have no schema; what happens inside them is user code as well.
    if (!op && function.scope() != at::RecordScope::BACKWARD_FUNCTION) return nullptr;
    auto frame = std::make_unique<Frame>(*current_recorder);
    current_recorder->start(function, *frame);
    frame->call.began = std::chrono::steady_clock::now();
    return frame;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* frame = static_cast<Frame*>(context);
    if (!frame || !current_recorder || !frame->reported) return;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - frame->call.began;
    frame->call.seconds = taken.count();
    const at::DisableRecordFunctionGuard not_recorded;
    current_recorder->finish(function, *frame);
  }
};

OpRecorder::OpRecorder(ModulePaths& paths, OpSink& sink) : paths_(paths), sink_(sink) {
  if (current_recorder) fail("amp.NumericsWatch", "expected no other watched step on the same thread");
  paths_.start_step();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Callbacks::start, Callbacks::end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  current_recorder = this;
}

OpRecorder::~OpRecorder() {
  at::removeCallback(handle_);
  current_recorder = nullptr;
}

void OpRecorder::start(const at::RecordFunction& function, Frame& frame) {
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    frame.backward_name = function.name();
    backward_ = &frame.backward_name;
    sequence_ = function.seqNr();
    depth_ = 0;
    return;
  }
  if (depth_++ > 0) return;
  const auto op = c10::Dispatcher::singleton().findSchema(*function.operator_name());
  if (!op) return;
  frame.reported = true;
  frame.returns = op->schema().returns().size();
  frame.first_sequence = at::sequence_number::peek();
  OpCall& call = frame.call;
  call.place.op = op->schema().name();
  call.in_place = op->schema().is_mutable();
  call.returns_memory = returns_memory(call.place.op);
  // Boxed calls show the caller's whole stack; the arguments are what lies on top.
  const auto inputs = function.inputs();
  const auto arguments =
      inputs.slice(inputs.size() - std::min(inputs.size(), op->schema().arguments().size()));
  call.given_nonfinite = std::any_of(arguments.begin(), arguments.end(), is_nonfinite);
  call.inputs = tensors_of(arguments);
  name(call);
  const OpLocation& p = call.place;
  call.place.occurrence = occurrences_[p.op + '\n' + p.path + '\n' + p.node + '\n' + p.autograd_node]++;
}

void OpRecorder::name(OpCall& call) const {
  OpLocation& place = call.place;
  if (torch::autograd::get_current_graph_task_id() >= 0) {
    place.pass = Pass::backward;
    if (backward_) place.autograd_node = *backward_;
    if (const OpLocation* forward = forward_place(sequence_)) {
      place.path = forward->path;
      place.node = forward->node;
    }
  } else if (const graph::Node* node = graph::running_node()) {
    place.path = node->scope;
    place.node = node->name();
  } else {
    place.path = paths_.path_of(call.inputs);
  }
}

const OpLocation* OpRecorder::forward_place(int64_t sequence) const {
  if (sequence < 0) return nullptr;
  const auto number = static_cast<uint64_t>(sequence);
  auto after = std::upper_bound(forward_.begin(), forward_.end(), number,
                                [](uint64_t n, const ForwardCall& call) { return n < call.begin; });
  if (after == forward_.begin()) return nullptr;
  const ForwardCall& call = *--after;
  return number < call.end ? &call.place : nullptr;
}

void OpRecorder::finish(const at::RecordFunction& function, Frame& frame) {
  OpCall& call = frame.call;
  const auto& outputs = function.outputs();
  const size_t count = std::min(outputs.size(), frame.returns);
  const c10::ArrayRef<c10::IValue> all(outputs);
  call.outputs = tensors_of(all.slice(all.size() - count));
  if (call.place.pass == Pass::forward) {
    const uint64_t next = at::sequence_number::peek();
    if (next > frame.first_sequence) forward_.push_back({frame.first_sequence, next, call.place});
    for (const at::Tensor& output : call.outputs) paths_.made(output, call.inputs, call.place.path);
  }
  sink_.visit(call);
}

}  // namespace ulp::amp
