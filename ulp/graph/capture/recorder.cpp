#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/graph/capture/hooks.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/capture/trace.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {

namespace {

struct Recording {
  Trace* trace = nullptr;
  c10::DeviceType device = at::kCPU;
  BeforeCall before = {};
  int depth = 0;
};

thread_local Recording current;

/// The value as it is now. Lists are kept by reference, and a scripted model may change one after the call.
c10::IValue snapshot(const c10::IValue& value) {
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList copy(list.elementType());
    copy.reserve(list.size());
    for (const c10::IValue& item : value.toListRef()) copy.push_back(snapshot(item));
    return copy;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& item : value.toTupleRef().elements()) elements.push_back(snapshot(item));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  return value;
}

/// The last `count` values.
void take(std::span<const c10::IValue> from, size_t count, std::vector<c10::IValue>& to) {
  for (const c10::IValue& value : from.last(std::min(count, from.size()))) to.push_back(snapshot(value));
}

/// Lives from a call's start to its end, also when the kernel throws.
struct Frame : at::ObserverContext {
  Frame() { ++current.depth; }
  ~Frame() override { --current.depth; }
  std::optional<size_t> call;  ///< set for top-level calls
};

/// Ops that LibTorch composes of others (CompositeImplicitAutograd) and that no pass or engine knows: the others are recorded in
/// their place. Sorted.
constexpr std::string_view kTransparent[] = {
    "aten::absolute",
    "aten::adjoint",
    "aten::arccos",
    "aten::arccosh",
    "aten::arcsin",
    "aten::arcsinh",
    "aten::arctan",
    "aten::arctan2",
    "aten::arctanh",
    "aten::atleast_1d",
    "aten::atleast_2d",
    "aten::atleast_3d",
    "aten::cartesian_prod",
    "aten::chain_matmul",
    "aten::clip",
    "aten::column_stack",
    "aten::concatenate",
    "aten::corrcoef",
    "aten::cov",
    "aten::cross",
    "aten::cumulative_trapezoid",
    "aten::diag",
    "aten::diagflat",
    "aten::diff",
    "aten::divide",
    "aten::dsplit",
    "aten::dstack",
    "aten::einsum",
    "aten::fft_fft",
    "aten::fft_fft2",
    "aten::fft_fftn",
    "aten::fft_fftshift",
    "aten::fft_hfft",
    "aten::fft_ifft",
    "aten::fft_ifft2",
    "aten::fft_ifftn",
    "aten::fft_ifftshift",
    "aten::fft_ihfft",
    "aten::fft_irfft",
    "aten::fft_irfft2",
    "aten::fft_irfftn",
    "aten::fft_rfft",
    "aten::fft_rfft2",
    "aten::fft_rfftn",
    "aten::fix",
    "aten::fliplr",
    "aten::flipud",
    "aten::float_power",
    "aten::ger",
    "aten::greater",
    "aten::greater_equal",
    "aten::hsplit",
    "aten::hstack",
    "aten::inner",
    "aten::isclose",
    "aten::isfinite",
    "aten::isreal",
    "aten::kron",
    "aten::less",
    "aten::less_equal",
    "aten::linalg_diagonal",
    "aten::linalg_matmul",
    "aten::linalg_multi_dot",
    "aten::linalg_norm",
    "aten::linalg_vander",
    "aten::linalg_vecdot",
    "aten::mH",
    "aten::matrix_H",
    "aten::msort",
    "aten::multiply",
    "aten::nanmean",
    "aten::negative",
    "aten::not_equal",
    "aten::numpy_T",
    "aten::outer",
    "aten::pairwise_distance",
    "aten::positive",
    "aten::ravel",
    "aten::row_stack",
    "aten::special_erf",
    "aten::special_erfc",
    "aten::special_exp2",
    "aten::special_expit",
    "aten::special_expm1",
    "aten::special_log1p",
    "aten::special_log_softmax",
    "aten::special_logit",
    "aten::special_logsumexp",
    "aten::special_ndtr",
    "aten::special_round",
    "aten::special_sinc",
    "aten::special_softmax",
    "aten::special_xlogy",
    "aten::subtract",
    "aten::sum_to_size",
    "aten::swapaxes",
    "aten::tensordot",
    "aten::trapezoid",
    "aten::trapz",
    "aten::true_divide",
    "aten::vander",
    "aten::vsplit",
    "aten::vstack",
};

static_assert(std::ranges::is_sorted(kTransparent));

bool is_transparent(const c10::OperatorName& name) {
  return std::ranges::binary_search(kTransparent, std::string_view(name.name));
}

void show_arguments(const TracedCall& call) {
  const std::vector<c10::Argument>& wanted = call.schema->arguments();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const c10::AliasInfo* alias = wanted[i].alias_info();
    for_each_tensor(call.inputs[i], current.before.read);
    if (alias != nullptr && alias->isWrite()) for_each_tensor(call.inputs[i], current.before.write);
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  // Ranges that users mark carry no schema; what happens inside them is the model's own.
  auto name = function.operator_name();
  if (!current.trace || !name || is_transparent(*name)) return nullptr;
  bool top = current.depth == 0;
  auto frame = std::make_unique<Frame>();
  if (!top) return frame;
  TracedCall call;
  call.target = name->overload_name.empty() ? name->name : name->name + "." + name->overload_name;
  call.schema = &find_schema(call.target);
  // Boxed calls show the caller's whole stack; the arguments are what lies on top.
  take({function.inputs().data(), function.inputs().size()}, call.schema->arguments().size(), call.inputs);
  call.grad = at::GradMode::is_enabled();
  for (const c10::IValue& input : call.inputs) {
    if (call.custom_function.empty()) call.custom_function = custom_function_behind(input, *current.trace);
  }
  call.node = running_node();
  call.autocast = {current.device, at::autocast::is_autocast_enabled(current.device),
                   at::autocast::get_autocast_dtype(current.device)};
  show_arguments(call);
  frame->call = current.trace->calls.size();
  current.trace->calls.push_back(std::move(call));
  return frame;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* frame = static_cast<Frame*>(context);
  if (!frame || !frame->call || !current.trace) return;
  TracedCall& call = current.trace->calls[*frame->call];
  take(function.outputs(), call.schema->returns().size(), call.outputs);
  call.grad_fns = grad_fns_of(call.outputs);
  const bool keep = current.trace->keep == Keep::values;
  const at::NoGradGuard no_grad;
  for (const c10::IValue& output : call.outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      call.metas.push_back(meta_of(tensor));
      if (keep) call.values.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
    });
  }
}

}  // namespace

Recorder::Recorder(Trace& trace, c10::DeviceType device, BeforeCall before) {
  if (current.trace) fail("graph.capture", "expected no capture inside another one on the same thread");
  current = {&trace, device, std::move(before), 0};
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
