#include "ulp/train/compile/step_threads.h"

#include <cfenv>

namespace ulp::train::compiled {

namespace {

/// The rounding mode and the treatment of subnormal numbers, those of another thread while it lives.
class FloatingPointModes {
 public:
  explicit FloatingPointModes(const std::fenv_t& others) {
    std::fegetenv(&own_);
    std::fesetenv(&others);
  }
  ~FloatingPointModes() { std::fesetenv(&own_); }
  FloatingPointModes(const FloatingPointModes&) = delete;
  FloatingPointModes& operator=(const FloatingPointModes&) = delete;

 private:
  std::fenv_t own_{};
};

}  // namespace

void StepThreads::run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const {
  std::fenv_t callers{};
  std::fegetenv(&callers);
  pool_.run(tasks, [&](int64_t i, int worker) {
    if (worker == 0) return task(i, worker);  // the caller
    const FloatingPointModes modes(callers);
    task(i, worker);
  });
}

}  // namespace ulp::train::compiled
