#include "ulp/graph/capture/hooks.h"

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"

namespace ulp::graph {

struct GradFns {
  using GradFn = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;
  std::vector<GradFn> nodes;
};

namespace {

/// The tensor's autograd node. Null for none, and where LibTorch has no answer: views that were made without
/// autograd and are written with it, whose use the call itself refuses.
GradFns::GradFn grad_fn_of(const at::Tensor& tensor) {
  try {
    return tensor.grad_fn();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

/// The call that set a hook there; null for none.
const char* hook_on(torch::autograd::Node& grad_fn) {
  const auto& kept = grad_fn.retains_grad_hooks();
  if (!grad_fn.tensor_pre_hooks().empty()) return "register_hook()";
  if (std::any_of(kept.begin(), kept.end(), [](const auto& entry) { return entry.second != nullptr; }))
    return "retain_grad()";
  if (!grad_fn.pre_hooks().empty()) return "add_pre_hook()";
  return grad_fn.post_hooks().empty() ? nullptr : "add_post_hook()";
}

const char* hook_on(const GradFns& grad_fns) {
  for (const GradFns::GradFn& grad_fn : grad_fns.nodes) {
    if (const char* found = hook_on(*grad_fn)) return found;
  }
  return nullptr;
}

/// The list behind the hooks of a leaf, null where it has none.
std::shared_ptr<torch::autograd::hooks_list> hooks_of(const at::Tensor& tensor) {
  const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? nullptr : meta->cpp_hooks_list_;
}

}  // namespace

std::shared_ptr<const GradFns> grad_fns_of(const std::vector<c10::IValue>& outputs) {
  std::shared_ptr<GradFns> result;
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      const GradFns::GradFn grad_fn = tensor.defined() ? grad_fn_of(tensor) : nullptr;
      if (!grad_fn) return;
      if (!result) result = std::make_shared<GradFns>();
      result->nodes.push_back(grad_fn);
    });
  }
  return result;
}

std::string custom_function_behind(const c10::IValue& value, const Trace& trace) {
  constexpr std::string_view kCustom = "CppNode<";
  std::string found;
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (!found.empty() || !tensor.defined() || !tensor.requires_grad()) return;
    const GradFns::GradFn grad_fn = grad_fn_of(tensor);
    if (!grad_fn) return;
    const std::string name = grad_fn->name();
    const size_t begin = name.find(kCustom), end = name.rfind('>');
    if (begin == std::string::npos || end == std::string::npos || end < begin) return;
    const auto gave = [&](const TracedCall& call) {
      return call.grad_fns && std::ranges::find(call.grad_fns->nodes, grad_fn) != call.grad_fns->nodes.end();
    };
    if (std::ranges::none_of(trace.calls, gave)) {
      found = name.substr(begin + kCustom.size(), end - begin - kCustom.size());
      while (found.ends_with(' ')) found.pop_back();
    }
  });
  return found;
}

void refuse_hooks(const Trace& trace, const std::vector<const Node*>& nodes) {
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const TracedCall& call = trace.calls[i];
    const char* hook = nodes[i] && call.grad_fns ? hook_on(*call.grad_fns) : nullptr;
    if (hook == nullptr) continue;
    const std::string& scope = nodes[i]->scope;
    fail({.code = ErrorCode::unsupported_op, .places = {error_place(*nodes[i])}}, "graph.capture",
         "a gradient hook on the result of ", call.target, scope.empty() ? "" : " in module '" + scope + "'",
         " (node '", nodes[i]->name(), "') was set in forward with ", hook,
         ", and a graph would not call it; hooks on parameters and on the model's results, set outside of "
         "forward, keep working");
  }
}

ParameterHooks::ParameterHooks(const Subject& subject) : subject_(subject) {
  for (const auto& [name, attribute] : subject.attributes) {
    const auto hooks = hooks_of(attribute.tensor);
    before_.push_back(hooks ? hooks->size() : 0);
  }
}

ParameterHooks::~ParameterHooks() {
  for (size_t i = 0; i < before_.size(); ++i) {
    const auto hooks = hooks_of(subject_.attributes[i].second.tensor);
    if (hooks && hooks->size() > before_[i]) hooks->resize(before_[i]);
  }
}

void ParameterHooks::refuse_new() const {
  for (size_t i = 0; i < before_.size(); ++i) {
    const auto& [name, attribute] = subject_.attributes[i];
    const auto hooks = hooks_of(attribute.tensor);
    if (!hooks || hooks->size() <= before_[i]) continue;
    fail(
        "graph.capture", "a gradient hook on '", name,
        "' was set in forward with register_hook(), and a graph would not set it; set it outside of forward");
  }
}

}  // namespace ulp::graph
