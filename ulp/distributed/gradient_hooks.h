// Being told when backward has added a parameter's gradient; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace ulp::distributed {

/// Calls `ready(i)` from backward after it has accumulated into the gradient of parameter i, until it is
/// destroyed. The parameters are leaves that require gradients; their gradients are dense.
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(size_t index)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Calls `done` at the end of the backward that is running on this thread; an exception leaves through
/// backward().
void at_end_of_backward(std::function<void()> done);

}  // namespace ulp::distributed
