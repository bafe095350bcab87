#include "ulp/distributed/gradient_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace ulp::distributed {

namespace {

namespace autograd = torch::autograd;

using Ready = std::function<void(size_t index)>;

class Hook final : public autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<Ready> ready, size_t index) : ready_(std::move(ready)), index_(index) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    (*ready_)(index_);
    return outputs;
  }

 private:
  std::shared_ptr<Ready> ready_;
  size_t index_;
};

}  // namespace

struct GradientHooks::State {
  // A shared or an intrusive pointer, as the version of LibTorch has it.
  using Accumulator = decltype(autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  struct Entry {
    Accumulator accumulator;  // is kept by those alone that hold it
    uintptr_t key;
  };
  std::vector<Entry> entries;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, Ready ready)
    : state_(std::make_unique<State>()) {
  const auto shared = std::make_shared<Ready>(std::move(ready));
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = autograd::impl::grad_accumulator(parameters[i]);
    const uintptr_t key = accumulator->add_post_hook(std::make_unique<Hook>(shared, i));
    state_->entries.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const auto& [accumulator, key] : state_->entries) accumulator->del_post_hook(key);
}

void at_end_of_backward(std::function<void()> done) {
  autograd::Engine::get_default_engine().queue_callback(std::move(done));
}

}  // namespace ulp::distributed
