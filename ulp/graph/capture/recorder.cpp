#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

namespace {

struct Recording {
  Trace* trace = nullptr;
  int depth = 0;
};

thread_local Recording current;

/// Lives from a call's start to its end, also when the kernel throws.
struct Frame : at::ObserverContext {
  Frame() { ++current.depth; }
  ~Frame() override { --current.depth; }
  std::optional<size_t> call;  ///< set for top-level calls
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  // Ranges that users mark carry no schema; what happens inside them is the model's own.
  auto name = function.operator_name();
  if (!current.trace || !name) return nullptr;
  bool top = current.depth == 0;
  auto frame = std::make_unique<Frame>();
  if (!top) return frame;
  TracedCall call;
  call.target = name->overload_name.empty() ? name->name : name->name + "." + name->overload_name;
  call.schema = &find_schema(call.target);
  // Boxed calls show the caller's whole stack; the arguments are what lies on top.
  auto inputs = function.inputs();
  size_t count = std::min(inputs.size(), call.schema->arguments().size());
  call.inputs.assign(inputs.end() - count, inputs.end());
  call.grad = at::GradMode::is_enabled();
  frame->call = current.trace->calls.size();
  current.trace->calls.push_back(std::move(call));
  return frame;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* frame = static_cast<Frame*>(context);
  if (!frame || !frame->call || !current.trace) return;
  TracedCall& call = current.trace->calls[*frame->call];
  const std::vector<c10::IValue>& outputs = function.outputs();
  size_t count = std::min(outputs.size(), call.schema->returns().size());
  call.outputs.assign(outputs.end() - static_cast<std::ptrdiff_t>(count), outputs.end());
  for (const c10::IValue& output : call.outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) { call.metas.push_back(meta_of(tensor)); });
  }
}

}  // namespace

Recorder::Recorder(Trace& trace) {
  if (current.trace) fail("graph.capture", "expected no capture inside another one on the same thread");
  current = {&trace, 0};
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

Recorder::~Recorder() {
  at::removeCallback(handle_);
  current = {};
}

bool recording() {
  return current.trace != nullptr;
}

}  // namespace ulp::graph
