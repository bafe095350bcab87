// How work is split: one injected function, so that a process never holds two thread pools by accident.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace ulp {

/// A borrowed callable: two pointers, no allocation. The callable must outlive the call it is passed to.
template <typename Signature>
class FunctionRef;

/// The one form that is defined: for a signature.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

/// Runs task(i, worker) for every i in [0, tasks), spread over workers; worker is in [0, workers()) and no
/// two concurrent calls share one. Returns when all are done.
class Parallel {
 public:
  virtual ~Parallel() = default;
  virtual int workers() const = 0;
  virtual void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> task) const = 0;
};

/// Runs everything on the calling thread.
class SerialParallel final : public Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
  }
};

}  // namespace ulp
