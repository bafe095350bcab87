#include "ulp/amp/autocast/policy_scope.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "ulp/amp/autocast/wide_products.h"
#include "ulp/base/error.h"
#include "ulp/libtorch/autocast_policies.h"
#include "ulp/libtorch/plain_kernels.h"

namespace ulp::amp {

namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;

// --- what this thread's scopes want ---------------------------------------------------------------------

struct Active {
  bool any = false;         ///< there is a policy
  std::vector<Cast> rules;  ///< by slot_of()
  c10::ScalarType dtype = c10::kFloat;
  PolicyUse use = PolicyUse::lists;

  Cast rule(size_t slot) const { return slot < rules.size() ? rules[slot] : Cast::leave; }
};

constexpr std::array kDevices = {c10::kCPU, c10::kCUDA};
struct ActivePolicies final : libtorch::AutocastPolicies {
  std::array<Active, kDevices.size()> devices;
};

const Active& active_on(size_t device) {
  static const Active none;
  const auto* policies = static_cast<const ActivePolicies*>(libtorch::autocast_policies().get());
  return policies == nullptr ? none : policies->devices[device];
}

/// Exceptions from LibTorch's lists hold where LibTorch's own switch is on, and for the type that it says:
/// what runs inside of the guard may have changed both.
bool is_on(const Active& active, c10::DeviceType device) {
  return active.use != PolicyUse::exceptions || at::autocast::is_autocast_enabled(device);
}
c10::ScalarType dtype_on(const Active& active, c10::DeviceType device) {
  return active.use == PolicyUse::exceptions ? at::autocast::get_autocast_dtype(device) : active.dtype;
}

std::optional<size_t> index_of(c10::DeviceType device) {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (kDevices[i] == device) return i;
  }
  return std::nullopt;
}

// --- the kernel that each listed op gets ------------------------------------------------------------------

/// Calls visit(tensor) for each defined tensor among a call's arguments until it returns true.
template <typename Visit>
void any_tensor(c10::ArrayRef<c10::IValue> args, const Visit& visit) {
  for (const c10::IValue& arg : args) {
    if (arg.isTensor()) {
      if (arg.toTensor().defined() && visit(arg.toTensor())) return;
    } else if (arg.isTensorList()) {
      for (const at::Tensor& tensor : arg.toTensorVector()) {
        if (tensor.defined() && visit(tensor)) return;
      }
    } else if (arg.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : arg.toOptionalTensorList()) {
        if (tensor && tensor->defined() && visit(*tensor)) return;
      }
    }
  }
}

class PolicyKernel final : public c10::OperatorKernel {
 public:
  PolicyKernel(size_t slot, std::optional<size_t> dtype_argument)
      : slot_(slot), dtype_argument_(dtype_argument) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const c10::ArrayRef<c10::IValue> args(stack->data() + (stack->size() - count), count);
    const Call call = look_at(args);
    if (call.use == PolicyUse::as_given && lacks_instructions(args) && wide_product(op, *stack)) return;
    const bool left_to_libtorch = call.use == PolicyUse::as_given ||
                                  (call.use == PolicyUse::exceptions && call.cast == Cast::lower_precision &&
                                   libtorch::PlainKernels::wanted());
    if (call.cast == Cast::leave || left_to_libtorch) {
      // As if there were no kernel here: what a composite op calls is looked at again.
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
      return;
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    if (call.cast == Cast::refuse) {
      fail("amp.Autocast", "expected an op that is safe under autocast, got ", op.schema().name(),
           "; run it where autocast is off, or list it as fp32");
    }
    c10::IValue* first = stack->data() + (stack->size() - count);
    if (call.cast == Cast::fp32_set_opt_dtype) {
      if (call.first_castable && dtype_argument_ && first[*dtype_argument_].isNone()) {
        first[*dtype_argument_] = static_cast<int64_t>(c10::kFloat);
      }
    } else {
      for (size_t i = 0; i < count; ++i) cast_argument(first[i], call);
    }
    const bool lower = call.cast == Cast::lower_precision && call.device == c10::kCPU;
    if (lower && computes_wide(call.to) && wide_product(op, *stack)) return;
    op.callBoxed(stack);
  }

 private:
  struct Call {
    Cast cast = Cast::leave;
    c10::DeviceType device = c10::kCPU;
    c10::ScalarType to = c10::kFloat;
    bool first_castable = false;
    PolicyUse use = PolicyUse::lists;
  };

  static bool lacks_instructions(c10::ArrayRef<c10::IValue> args) {
    return args[0].isTensor() && args[0].toTensor().defined() &&
           computes_wide(args[0].toTensor().scalar_type());
  }

  /// The device is that of the first tensor that could be cast on a device with a policy.
  Call look_at(c10::ArrayRef<c10::IValue> args) const {
    Call call;
    const Active* chosen = nullptr;
    std::optional<c10::ScalarType> widest;
    bool first = true;
    any_tensor(args, [&](const at::Tensor& tensor) {
      const bool was_first = std::exchange(first, false);
      if (!castable(tensor.scalar_type())) return false;
      if (!chosen) {
        const auto device = index_of(tensor.device().type());
        if (!device || active_on(*device).rule(slot_) == Cast::leave) return false;
        if (!is_on(active_on(*device), tensor.device().type())) return false;
        chosen = &active_on(*device);
        call.cast = chosen->rule(slot_);
        call.device = tensor.device().type();
      }
      if (tensor.device().type() != call.device) return false;
      call.first_castable = call.first_castable || was_first;
      widest = !widest || *widest == tensor.scalar_type() ? tensor.scalar_type() : c10::kFloat;
      return call.cast != Cast::widest;
    });
    if (chosen) call.use = chosen->use;
    if (call.cast == Cast::lower_precision) call.to = dtype_on(*chosen, call.device);
    if (call.cast == Cast::widest) call.to = *widest;
    return call;
  }

  static at::Tensor cast(const at::Tensor& tensor, const Call& call) {
    const bool wanted = tensor.defined() && castable(tensor.scalar_type()) &&
                        tensor.device().type() == call.device && tensor.scalar_type() != call.to;
    return wanted ? tensor.to(call.to) : tensor;
  }

  static void cast_argument(c10::IValue& arg, const Call& call) {
    if (arg.isTensor()) {
      arg = cast(arg.toTensor(), call);
    } else if (arg.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : arg.toTensorVector()) list.push_back(cast(tensor, call));
      arg = std::move(list);
    } else if (arg.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : arg.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional(cast(*tensor, call)) : std::nullopt);
      }
      arg = std::move(list);
    }
  }

  size_t slot_;
  std::optional<size_t> dtype_argument_;
};

// --- all ops that any policy of this process named
// ----------------------------------------------------------

class Ops {
 public:
  /// Never destroyed: at exit the dispatcher may be gone before it.
  static Ops& instance() {
    static auto* ops = new Ops;
    return *ops;
  }

  size_t slot(const std::string& target) {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = slots_.try_emplace(target, names_.size());
    if (fresh) names_.push_back(target);
    return found->second;
  }

  std::optional<size_t> find(std::string_view target) {
    const std::lock_guard lock(mutex_);
    const auto found = slots_.find(std::string(target));
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Gives every op up to now its kernel.
  void register_kernels() {
    const std::lock_guard lock(mutex_);
    if (handles_.empty()) take_key();
    auto& dispatcher = c10::Dispatcher::singleton();
    for (; registered_ < names_.size(); ++registered_) {
      const std::string& target = names_[registered_];
      const size_t dot = target.find('.');
      const c10::OperatorName name(target.substr(0, dot),
                                   dot == std::string::npos ? "" : target.substr(dot + 1));
      const c10::FunctionSchema& schema = dispatcher.findSchema(name)->schema();
      auto kernel = std::make_unique<PolicyKernel>(registered_, dtype_argument(schema));
      handles_.push_back(dispatcher.registerImpl(
          name, kKey,
          c10::KernelFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::move(kernel))),
          std::nullopt, nullptr, "ulp::amp::OpPolicy"));
    }
  }

 private:
  void take_key() {
    if (c10::is_privateuse1_backend_registered()) {
      fail("amp.OpPolicy",
           "expected no backend on PrivateUse1: policies other than LibTorch's own work on its autocast key");
    }
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(kKey)) return;
    handles_.push_back(
        dispatcher.registerFallback(kKey, c10::KernelFunction::makeFallthrough(), "ulp::amp::OpPolicy"));
  }

  std::mutex mutex_;
  std::unordered_map<std::string, size_t> slots_;
  std::vector<std::string> names_;
  size_t registered_ = 0;
  std::deque<c10::RegistrationHandleRAII> handles_;
};

}  // namespace

std::optional<size_t> dtype_argument(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "dtype" && argument.type()->kind() == c10::TypeKind::OptionalType) return i;
  }
  return std::nullopt;
}

size_t slot_of(const std::string& target) {
  return Ops::instance().slot(target);
}

PolicyScope::PolicyScope(c10::DeviceType device, c10::ScalarType dtype, const OpPolicy* policy, PolicyUse use,
                         bool wide_lstm)
    : previous_included_(c10::impl::tls_is_dispatch_key_included(kKey)),
      previous_excluded_(c10::impl::tls_is_dispatch_key_excluded(kKey)) {
  const size_t index = index_of(device).value();
  if (policy) Ops::instance().register_kernels();
  previous_ = libtorch::autocast_policies();
  if (policy == nullptr && !active_on(index).any) return;
  auto policies = previous_ ? std::make_shared<ActivePolicies>(static_cast<const ActivePolicies&>(*previous_))
                            : std::make_shared<ActivePolicies>();
  policies->devices[index] = policy ? Active{true, policy->by_slot_, dtype, use} : Active{};
  std::vector<Cast>& rules = policies->devices[index].rules;
  const auto lstm = wide_lstm ? Ops::instance().find(kLstmLayerOp) : std::nullopt;
  if (lstm && *lstm < rules.size() && rules[*lstm] == Cast::lower_precision) rules[*lstm] = Cast::fp32;
  libtorch::set_autocast_policies(std::move(policies));
  if (!policy) return;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
  c10::impl::tls_set_dispatch_key_excluded(kKey, false);
}

PolicyScope::~PolicyScope() {
  libtorch::set_autocast_policies(std::move(previous_));
  c10::impl::tls_set_dispatch_key_included(kKey, previous_included_);
  c10::impl::tls_set_dispatch_key_excluded(kKey, previous_excluded_);
}

ActiveRule active_rule(std::string_view target, c10::DeviceType device) {
  const auto index = index_of(device);
  if (!index) return {};
  const Active& here = active_on(*index);
  const bool libtorch = at::autocast::is_autocast_enabled(device);
  if (here.any && here.use != PolicyUse::as_given && is_on(here, device) &&
      !c10::impl::tls_is_dispatch_key_excluded(kKey)) {
    const auto slot = Ops::instance().find(target);
    const Cast cast = slot ? here.rule(*slot) : Cast::leave;
    if (cast != Cast::leave || !libtorch) return {true, cast, dtype_on(here, device)};
  }
  if (!libtorch) return {};
  const OpPolicy& lists = device == c10::kCPU ? OpPolicy::libtorch_cpu() : OpPolicy::cuda_like();
  return {true, lists.find(target), at::autocast::get_autocast_dtype(device)};
}

}  // namespace ulp::amp
