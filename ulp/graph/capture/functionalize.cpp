#include "ulp/graph/capture/functionalize.h"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ulp/graph/capture/schema.h"

namespace ulp::graph {

namespace {

/// A call that undoes a view.
struct Inverse {
  const char* target;
  std::vector<c10::IValue> inputs;
};

/// The same arguments behind the viewed tensor and what is written into it.
Inverse scatter(const char* target, const TracedCall& view) {
  Inverse made{target, {view.inputs[0], view.outputs[0]}};
  made.inputs.insert(made.inputs.end(), view.inputs.begin() + 1, view.inputs.end());
  return made;
}

Inverse narrow(const TracedCall& view) {
  int64_t begin = view.inputs[2].toInt();
  if (begin < 0) begin += view.inputs[0].toTensor().size(view.inputs[1].toInt());
  return {"aten::slice_scatter",
          {view.inputs[0], view.outputs[0], view.inputs[1], begin, begin + view.inputs[3].toInt(), 1}};
}

Inverse permute(const TracedCall& view) {
  const std::vector<int64_t> dims = view.inputs[1].toIntVector();
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> back(dims.size());
  for (int64_t d = 0; d < rank; ++d)
    back[static_cast<size_t>((dims[static_cast<size_t>(d)] + rank) % rank)] = d;
  return {"aten::permute", {view.outputs[0], back}};
}

Inverse reshape(const TracedCall& view) {
  return {"aten::reshape", {view.outputs[0], view.inputs[0].toTensor().sizes().vec()}};
}

std::optional<Inverse> inverse_of(const TracedCall& view) {
  const std::string_view target = view.target;
  if (target == "aten::slice.Tensor") return scatter("aten::slice_scatter", view);
  if (target == "aten::select.int") return scatter("aten::select_scatter", view);
  if (target == "aten::diagonal") return scatter("aten::diagonal_scatter", view);
  if (target == "aten::narrow") return narrow(view);
  if (target == "aten::transpose.int")
    return Inverse{"aten::transpose.int", {view.outputs[0], view.inputs[1], view.inputs[2]}};
  if (target == "aten::t") return Inverse{"aten::t", {view.outputs[0]}};
  if (target == "aten::permute") return permute(view);
  for (const std::string_view same :
       {"aten::view", "aten::reshape", "aten::flatten.using_ints", "aten::unflatten.int", "aten::squeeze",
        "aten::squeeze.dim", "aten::squeeze.dims", "aten::unsqueeze"})
    if (target == same) return reshape(view);
  return std::nullopt;
}

/// Whether a call changes the sizes or strides of the tensor itself, so that what it was when viewed is not
/// known.
bool reshapes_itself(const TracedCall& call) {
  const std::string_view target = call.target;
  for (const std::string_view op : {"squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_",
                                    "resize_", "as_strided_", "set_", "resize_as_"})
    if (target.substr(0, target.find('.')) == "aten::" + std::string(op)) return true;
  return false;
}

/// The tensors that a call writes to.
std::vector<at::Tensor> written_by(const TracedCall& call) {
  std::vector<at::Tensor> written;
  const auto& wanted = call.schema->arguments();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const c10::AliasInfo* alias = wanted[i].alias_info();
    if (alias != nullptr && alias->isWrite() && call.inputs[i].isTensor())
      written.push_back(call.inputs[i].toTensor());
  }
  return written;
}

class ViewWriter {
 public:
  explicit ViewWriter(const void* memory) : memory_(memory) {}

  /// The calls with those that write back; nothing where a view has no inverse.
  std::optional<std::vector<TracedCall>> run(const std::vector<TracedCall>& calls) {
    for (const TracedCall& call : calls) {
      calls_.push_back(call);
      note_view(call);
      if (call.written_back) continue;
      for (const at::Tensor& tensor : written_by(call)) {
        if (!tensor.defined() || memory_key(tensor) != memory_) continue;
        if (reshapes_itself(call) || !write_back(tensor, call)) return std::nullopt;
      }
    }
    return std::move(calls_);
  }

 private:
  /// Remembers what a tensor of this memory is a view of.
  void note_view(const TracedCall& call) {
    if (call.schema->is_mutable() || call.inputs.empty() || !call.inputs[0].isTensor()) return;
    const at::Tensor& base = call.inputs[0].toTensor();
    if (!base.defined() || memory_key(base) != memory_) return;
    for (const c10::IValue& output : call.outputs) {
      for_each_tensor(output, [&](const at::Tensor& made) {
        if (made.defined() && memory_key(made) == memory_ && !made.is_same(base))
          view_of_.try_emplace(made.unsafeGetTensorImpl(), call);
      });
    }
  }

  bool write_back(const at::Tensor& tensor, const TracedCall& writer) {
    const auto view = view_of_.find(tensor.unsafeGetTensorImpl());
    if (view == view_of_.end()) return true;  // the whole
    std::optional<Inverse> inverse = view->second.outputs.size() == 1 && view->second.outputs[0].isTensor()
                                         ? inverse_of(view->second)
                                         : std::nullopt;
    if (!inverse) return false;
    const at::Tensor base = view->second.inputs[0].toTensor();
    // Without autograd LibTorch keeps the gradient of what was viewed, as if nothing had been written.
    if (!writer.grad && base.requires_grad()) return false;
    TracedCall call = writer;
    call.target = inverse->target;
    call.schema = &find_schema(call.target);
    call.inputs = std::move(inverse->inputs);
    call.outputs = {base};
    call.metas = {meta_of(base)};
    call.grad_fns = nullptr;
    call.values.clear();
    call.written_back = true;
    calls_.push_back(std::move(call));
    return write_back(base, writer);
  }

  const void* memory_;
  std::vector<TracedCall> calls_;
  std::unordered_map<const void*, TracedCall> view_of_;  ///< by tensor, the call that made it
};

}  // namespace

const void* memory_key(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : tensor.unsafeGetTensorImpl();
}

bool write_back_views(Trace& trace, const void* memory) {
  std::optional<std::vector<TracedCall>> calls = ViewWriter(memory).run(trace.calls);
  if (!calls) return false;
  trace.calls = *std::move(calls);
  return true;
}

}  // namespace ulp::graph
