#include "ulp/memory/saved/save_scope.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <typeinfo>

#include "ulp/base/error.h"

namespace ulp::memory {
namespace {

thread_local SaveHandler* current_handler = nullptr;

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(SaveHandler& handler) : handler_(&handler) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    saved_ = handler_->pack(tensor);
    handler_ = nullptr;  // lives no longer than its scope
  }
  at::Tensor call_unpack_hook() override { return saved_->unpack(); }

 private:
  SaveHandler* handler_;
  std::shared_ptr<SavedTensor> saved_;
};

/// LibTorch's engine, but for the hooks. Only the first engine of a process starts, at its first backward pass, the threads that
/// serve devices and deep backward passes within each other. This one comes later and starts its own.
class HookingEngine final : public torch::autograd::Engine {
 public:
  HookingEngine() { start_device_threads(); }
  ~HookingEngine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_handler ? std::make_unique<Hooks>(*current_handler) : nullptr;
  }
};

torch::autograd::Engine& hooking_engine() {
  static HookingEngine engine;
  return engine;
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
    if (typeid(engine) != typeid(torch::autograd::Engine)) {
      fail("memory.SaveScope",
           "expected LibTorch's own autograd engine, got another one, as Python's: saved tensors stay as "
           "they are");
    }
    engine.initialize_device_threads_pool();
    torch::autograd::set_default_engine_stub(&hooking_engine);
  });
}

}  // namespace

SavedTensor::~SavedTensor() = default;
SaveHandler::~SaveHandler() = default;

SaveScope::SaveScope(SaveHandler* handler) : outer_(current_handler) {
  if (handler) install();
  current_handler = handler;
}

SaveScope::~SaveScope() {
  current_handler = outer_;
}

SaveHandler* SaveScope::active() {
  return current_handler;
}

}  // namespace ulp::memory
