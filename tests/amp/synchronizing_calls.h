// Counts what makes the host wait for a device: reads of single values and copies to the host. A dispatcher
// observer sees the calls of operators; on processors they are the same ones.
#pragma once

#include <ATen/record_function.h>

#include <map>
#include <string>
#include <string_view>

namespace ulp::test {

/// Counts from its construction to its end, on every thread.
class SynchronizingCalls {
 public:
  SynchronizingCalls();
  ~SynchronizingCalls() { at::removeCallback(handle_); }
  SynchronizingCalls(const SynchronizingCalls&) = delete;
  SynchronizingCalls& operator=(const SynchronizingCalls&) = delete;
  /// Calls so far, by operator.
  static std::map<std::string, int>& calls();
  int total() const {
    int sum = 0;
    for (const auto& [name, count] : calls()) sum += count;
    return sum;
  }

 private:
  at::CallbackHandle handle_;
};

inline std::map<std::string, int>& SynchronizingCalls::calls() {
  static std::map<std::string, int> counted;
  return counted;
}

/// Calls that wait: .item() and comparisons whose answer is the host's; operators whose result has a size
/// that depends on values.
inline bool is_synchronizing(const std::string& name) {
  static const std::map<std::string, bool> kNames = {{"aten::_local_scalar_dense", true},
                                                     {"aten::equal", true},
                                                     {"aten::nonzero", true},
                                                     {"aten::masked_select", true},
                                                     {"aten::_unique2", true}};
  const auto found = kNames.find(name);
  return found != kNames.end() && found->second;
}

/// The processor's fused optimizers read their steps as values; a GPU's do not. What they call is not
/// counted.
inline bool is_fused_optimizer(const at::RecordFunction& fn) {
  return std::string_view(fn.name()).starts_with("aten::_fused_");
}
inline int& fused_depth() {
  thread_local int depth = 0;
  return depth;
}

inline SynchronizingCalls::SynchronizingCalls() {
  calls().clear();
  const auto begin = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    if (is_fused_optimizer(fn)) ++fused_depth();
    if (const std::string name = fn.name(); fused_depth() == 0 && is_synchronizing(name)) ++calls()[name];
    return nullptr;
  };
  const auto end = [](const at::RecordFunction& fn, at::ObserverContext*) {
    if (is_fused_optimizer(fn)) --fused_depth();
  };
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace ulp::test
