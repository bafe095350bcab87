#include "ulp/memory/predict/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/module.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"

namespace ulp::memory {

namespace {

/// A node of autograd without the type that C++ gives it: "WideLinear" of
/// "torch::autograd::CppNode<ulp::amp::WideLinear>".
std::string node_name(const std::string& name) {
  constexpr std::string_view kFunction = "torch::autograd::CppNode<";
  if (!name.starts_with(kFunction) || !name.ends_with('>')) return name;
  const std::string type = name.substr(kFunction.size(), name.size() - kFunction.size() - 1);
  const size_t last = type.rfind("::");
  return last == std::string::npos ? type : type.substr(last + 2);
}

constexpr const char* kMemoryRecorderWhere = "memory.MemoryRecorder";

/// "encoder.layer.0.dense" of "encoder.layer.0.dense.weight".
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

bool copies(std::string_view op) {
  return op == "aten::to" || op == "aten::_to_copy" || op == "aten::_autocast_to_reduced_precision";
}

/// The ops that run at the moment, and where their results came from.
class Places {
 public:
  /// Is told where each run is.
  using BeginRun = std::function<void(const CallSite&)>;
  explicit Places(BeginRun begin_run) : begin_run_(std::move(begin_run)) { begin_run_(here_); }

  struct Frame : at::ObserverContext {
    explicit Frame(Places& places) : places(places) {}
    ~Frame() override { places.leave(*this); }
    Places& places;
    bool op = false, casts = false, backward = false, outermost = false;
    uint64_t first_sequence = 0;
  };

  void know(const void* storage, const std::string& module) { modules_[storage] = module; }
  void forget() { modules_.clear(); }
  bool casting() const { return casting_ > 0; }

  void enter(Phase phase) {
    here_ = {.phase = phase};
    in_node_ = false;
    if (phase == Phase::data) forward_.clear();
    begin_run_(here_);
  }

  std::unique_ptr<Frame> start(const at::RecordFunction& function) {
    auto frame = std::make_unique<Frame>(*this);
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      start_backward(function, *frame);
      return frame;
    }
    const auto inputs = function.inputs();
    frame->op = true;
    frame->first_sequence = at::sequence_number::peek();
    if (here_.phase == Phase::forward && copies(function.name()) && reads_parameter(inputs)) {
      frame->casts = true;
      ++casting_;
    }
    if (depth_++ > 0 || in_node_) return frame;
    frame->outermost = true;
    here_.op = function.name();
    if (here_.phase == Phase::forward) find_scope(inputs);
    begin_run_(here_);
    return frame;
  }

  void end(const Frame& frame) {
    if (!frame.outermost || here_.phase != Phase::forward) return;
    const uint64_t next = at::sequence_number::peek();
    for (uint64_t i = frame.first_sequence; i < next; ++i) forward_[static_cast<int64_t>(i)] = here_.scope;
  }

 private:
  void start_backward(const at::RecordFunction& function, Frame& frame) {
    frame.backward = frame.outermost = true;
    in_node_ = true;
    here_.op = node_name(function.name());
    const auto found = forward_.find(function.seqNr());
    if (found != forward_.end()) here_.scope = found->second;
    begin_run_(here_);
  }

  void leave(const Frame& frame) {
    if (frame.op) --depth_;
    if (frame.casts) --casting_;
    if (frame.backward) in_node_ = false;
    if (!frame.outermost) return;
    CallSite between = here_;  // frees, and what belongs to no op
    between.op.clear();
    begin_run_(between);
  }

  static const void* storage_of(const c10::IValue& value) {
    if (!value.isTensor()) return nullptr;
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
  }

  bool reads_parameter(c10::ArrayRef<const c10::IValue> inputs) const {
    for (const c10::IValue& input : inputs) {
      if (const void* storage = storage_of(input); storage != nullptr && modules_.contains(storage))
        return true;
    }
    return false;
  }

  void find_scope(c10::ArrayRef<const c10::IValue> inputs) {
    if (const graph::Node* node = graph::running_node(); node != nullptr && !node->scope.empty()) {
      here_.scope = node->scope;
      return;
    }
    for (const c10::IValue& input : inputs) {
      const auto found = modules_.find(storage_of(input));
      if (found != modules_.end()) here_.scope = found->second;
    }
  }

  BeginRun begin_run_;
  CallSite here_;
  bool in_node_ = false;  ///< of autograd
  int depth_ = 0, casting_ = 0;
  std::unordered_map<const void*, std::string> modules_;  ///< of the parameters' storages
  std::unordered_map<int64_t, std::string> forward_;      ///< scopes by sequence number
};

/// The callbacks of the dispatcher are plain functions, so they find what they write to through this.
thread_local Places* current_places = nullptr;

std::unique_ptr<at::ObserverContext> start_op(const at::RecordFunction& function) {
  if (current_places == nullptr) return nullptr;
  return current_places->start(function);
}

void end_op(const at::RecordFunction&, at::ObserverContext* context) {
  if (current_places != nullptr && context != nullptr)
    current_places->end(*static_cast<Places::Frame*>(context));
}

/// Storages as the allocators report them, from any thread.
class Ledger final : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }

  void reportMemoryUsage(void* memory, int64_t bytes, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (bytes < 0) return end_of(memory);
    const bool cast = current_places != nullptr && current_places->casting();
    if (bytes > 0) add(memory, bytes, cast ? Category::casts : Category::workspace);
  }

  /// What is asked for next is another run's.
  void begin_run(const CallSite& place) {
    const std::lock_guard lock(mutex_);
    recording_.runs.push_back(place_index(place));
    allocations_ = 0;
  }

  /// What is there already counts as made now.
  void add_older(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const void* memory = tensor.storage().data();
    if (memory == nullptr || living_.contains(memory)) return;
    add(memory, static_cast<int64_t>(tensor.storage().nbytes()), Category::parameters);
  }

  void set_category(const at::Tensor& tensor, Category category) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const std::lock_guard lock(mutex_);
    const auto found = living_.find(tensor.storage().data());
    if (found != living_.end()) recording_.lives[found->second].category = category;
  }

  /// What was asked for in a phase, lives still and is nothing particular yet.
  void set_category_of(Phase phase, Category category) {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, index] : living_) {
      Life& life = recording_.lives[index];
      if (life.category == Category::workspace && recording_.call_site_of(life.begin.run).phase == phase)
        life.category = category;
    }
  }

  Recording take() {
    const std::lock_guard lock(mutex_);
    living_.clear();
    return std::move(recording_);
  }

 private:
  int32_t place_index(const CallSite& place) {
    const auto [found, is_new] =
        index_.emplace(describe(place), static_cast<int32_t>(recording_.places.size()));
    if (is_new) recording_.places.push_back(place);
    return found->second;
  }

  Moment now() const { return {static_cast<int32_t>(recording_.runs.size()) - 1, allocations_}; }

  void add(const void* memory, int64_t bytes, Category category) {
    living_[memory] = recording_.lives.size();
    recording_.lives.push_back({.bytes = bytes, .begin = now(), .end = {}, .category = category});
    ++allocations_;
  }

  void end_of(const void* memory) {
    const auto found = living_.find(memory);
    if (found == living_.end()) return;  // older than the recording
    recording_.lives[found->second].end = now();
    living_.erase(found);
  }

  std::mutex mutex_;
  Recording recording_;
  int32_t allocations_ = 0;  ///< of the last run
  std::unordered_map<const void*, size_t> living_;
  std::unordered_map<std::string, int32_t> index_;
};

}  // namespace

struct MemoryRecorder::State {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  Places places{[this](const CallSite& place) { ledger->begin_run(place); }};
  std::optional<c10::DebugInfoGuard> guard;
  at::CallbackHandle handle = {};
  torch::nn::Module* model = nullptr;
  Phase phase = Phase::setup;

  State() {
    if (current_places != nullptr)
      fail(kMemoryRecorderWhere, "expected no other recorder on the same thread");
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(start_op, end_op)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    current_places = &places;
    guard.emplace(c10::DebugInfoKind::PROFILER_STATE, ledger);
  }
  ~State() { stop(); }

  void stop() {
    if (!guard) return;
    guard.reset();
    current_places = nullptr;
    at::removeCallback(handle);
  }

  void know_parameters() {
    places.forget();  // storages that are gone give their addresses to others
    for (const auto& item : model->named_parameters()) know(item.key(), item.value());
    for (const auto& item : model->named_buffers()) know(item.key(), item.value());
  }
  void know(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    ledger->add_older(tensor);
    ledger->set_category(tensor, Category::parameters);
    places.know(tensor.storage().data(), module_of(name));
  }

  /// What the phase that ends has left.
  void settle() {
    if (phase == Phase::data) ledger->set_category_of(Phase::data, Category::inputs);
    if (phase == Phase::forward) ledger->set_category_of(Phase::forward, Category::activations);
    if (phase == Phase::step) ledger->set_category_of(Phase::step, Category::optimizer);
    if (model == nullptr) return;
    if (phase == Phase::setup) know_parameters();
    if (phase != Phase::backward) return;
    for (const at::Tensor& parameter : model->parameters()) {
      ledger->set_category(parameter.grad(), Category::gradients);
    }
  }
};

MemoryRecorder::MemoryRecorder() : state_(std::make_unique<State>()) {}
MemoryRecorder::~MemoryRecorder() = default;

void MemoryRecorder::watch(torch::nn::Module& model) {
  state_->model = &model;
  state_->know_parameters();
}

void MemoryRecorder::enter(Phase phase) {
  state_->settle();
  state_->phase = phase;
  state_->places.enter(phase);
}

Recording MemoryRecorder::finish() {
  state_->settle();
  state_->stop();
  return state_->ledger->take();
}

}  // namespace ulp::memory
