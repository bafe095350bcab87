#include "ulp/measure/op_profile.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

namespace ulp::measure {

namespace {

using Clock = std::chrono::steady_clock;

/// The operators that run at the moment, innermost last. The callbacks of the dispatcher are plain functions,
/// so they find it through this thread's variable.
struct Recorder {
  struct Frame {
    Clock::time_point start;
    double children = 0;
  };
  struct Total {
    int64_t calls = 0;
    double seconds = 0;
  };
  std::vector<Frame> stack{{Clock::now()}};
  std::map<std::string, Total> totals;

  /// Ends the innermost frame and returns its own seconds.
  double pop() {
    const double whole = std::chrono::duration<double>(Clock::now() - stack.back().start).count();
    const double own = whole - stack.back().children;
    stack.pop_back();
    if (!stack.empty()) stack.back().children += whole;
    return own;
  }
};

thread_local Recorder* current = nullptr;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
  if (current) current->stack.push_back({Clock::now()});
  return nullptr;
}

void leave(const at::RecordFunction& function, at::ObserverContext*) {
  if (!current || current->stack.size() < 2) return;
  Recorder::Total& total = current->totals[function.name()];
  ++total.calls;
  total.seconds += current->pop();
}

/// Removes the observer, whatever the work throws.
struct Registration {
  explicit Registration(Recorder* recorder)
      : handle(at::addThreadLocalCallback(
            at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}))) {
    current = recorder;
  }
  ~Registration() {
    current = nullptr;
    at::removeCallback(handle);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  at::CallbackHandle handle;
};

}  // namespace

std::vector<OpTime> profile_ops(const std::function<void()>& work) {
  Recorder recorder;
  {
    const Registration registration(&recorder);
    work();
  }
  std::vector<OpTime> result = {{"other", 1, recorder.pop()}};
  for (const auto& [op, total] : recorder.totals) result.push_back({op, total.calls, total.seconds});
  std::sort(result.begin(), result.end(),
            [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace ulp::measure
