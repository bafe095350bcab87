// What one run of a model looked like: the operators it called, with the very tensors that went in and out.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::graph {

struct GradFns;  // hooks.h

/// One top-level operator call.
struct TracedCall {
  std::string target;
  const c10::FunctionSchema* schema = nullptr;
  std::vector<c10::IValue> inputs, outputs;
  std::vector<TensorMeta> metas;  ///< of the output tensors, flattened, as they were when the call returned
  bool grad = true;               ///< gradients were being recorded
  AutocastSetting autocast = {};  ///< what held when the call started
  const Node* node = nullptr;     ///< that made the call, in a run of a graph
  /// Not the model's: brings what the call before it wrote through a view into the tensor that is viewed, its output
  /// (written_views.h).
  bool written_back = false;
  std::shared_ptr<const GradFns> grad_fns;  ///< of the outputs
  /// The torch::autograd::Function that an argument came through since a call gave it, empty for none.
  std::string custom_function;
  /// Copies of the output tensors, flattened, as they were when the call returned (Keep::values).
  std::vector<at::Tensor> values;
};

/// What a trace copies, beside the tensors themselves, which later calls and the end of the run may change.
enum class Keep : uint8_t {
  nothing,
  ends,   ///< the result, and the buffers and written parameters as the run left them
  values  ///< what each call returned, too
};

/// The sizes of one run.
struct RunSizes {
  std::vector<int64_t> values = {0};    ///< the batch, 0 for none, and the free dimensions
  std::vector<std::string> free_names;  ///< of those behind the batch
  /// "batch size 2, time 14"
  std::string text() const;
};

/// One run. Holds every tensor it saw, so that their addresses stay unique as long as it lives.
struct Trace {
  std::vector<TracedCall> calls;
  std::vector<at::Tensor> inputs;
  c10::IValue result;
  std::string custom_result;  ///< as TracedCall::custom_function, of the result
  RunSizes sizes;
  bool training = false;
  Keep keep = Keep::nothing;
  c10::IValue result_copy;             ///< Keep::ends
  std::map<size_t, at::Tensor> after;  ///< Keep::ends: attributes of the subject by their index
  std::vector<at::Tensor> gradients;   ///< TraceOptions::gradients: of parameters, then of inputs
};

/// Who is shown the tensors that a call is about to read, its written ones among them, and to write to.
struct BeforeCall {
  std::function<void(const at::Tensor&)> read, write;
};

/// Records the calls of this thread from construction to destruction.
class Recorder {
 public:
  Recorder(Trace& trace, c10::DeviceType device, BeforeCall before);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  uint64_t handle_;
};

/// True while a Recorder is alive on this thread.
ULP_API bool recording();

/// A model as capture sees it, whether it came from torch::nn or from TorchScript.
struct Subject {
  std::vector<std::pair<std::string, Attribute>> attributes;  ///< parameters and buffers in the model's order
  /// Paths of the submodules in the model's order, with the names of their types; empty from TorchScript.
  std::vector<std::pair<std::string, std::string>> modules;
  std::function<c10::IValue(const std::vector<at::Tensor>&)> forward;
  std::function<void(bool)> train;     ///< switches the whole model
  std::function<void()> restore_mode;  ///< gives each submodule back the mode it had
  bool was_training = true;            ///< the root's mode
  bool scripted = false;               ///< from TorchScript
  /// What forward makes of numbers alone stays calls where it writes through views, else it is a constant. So
  /// what it makes may follow the sizes.
  bool keeps_written_constants = false;
  bool infers_only = false;  ///< Modes::eval_only
  /// What custom autograd functions call is recorded as if LibTorch differentiated it; check_gradients() has to
  /// follow.
  bool differentiates_custom = false;
  std::shared_ptr<size_t> runs = std::make_shared<size_t>(0);  ///< forward passes that trace() has made
};

/// How a model is run.
struct TraceOptions {
  bool training = false;
  /// Under an autocast to this type, else under none, whatever the caller's is.
  std::optional<at::ScalarType> autocast = std::nullopt;
  Keep keep = Keep::nothing;
  /// Gradients of the results, each number weighted by one that is drawn, times this; 0 for none.
  double gradients = 0;
};

/// The inputs as if a gradient of them were wanted: custom functions on them show only then.
std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& inputs);

/// Runs the model once and leaves its parameters, buffers, mode and the random state as they were.
Trace trace(const Subject& subject, const std::vector<at::Tensor>& inputs, const RunSizes& sizes,
            const TraceOptions& options);

/// Calls visit(tensor) for each tensor in a value, also undefined ones and those in lists, in order.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) for_each_tensor(item, visit);
  }
}

}  // namespace ulp::graph
