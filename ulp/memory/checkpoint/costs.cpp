#include "ulp/memory/checkpoint/costs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/base/seconds_since.h"
#include "ulp/graph/capture/program.h"
#include "ulp/memory/checkpoint/call_order.h"
#include "ulp/memory/saved/modes.h"
#include "ulp/memory/saved/saved_part.h"

namespace ulp::memory {
namespace {

using graph::Program;
using Clock = std::chrono::steady_clock;

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<int64_t>(tensor.storage().nbytes())
                              : tensor.numel() * static_cast<int64_t>(tensor.itemsize());
}

/// Writes buffers back in the end.
class BufferGuard {
 public:
  explicit BufferGuard(const graph::GraphModule& module) : buffers_(module.buffers()) {
    for (const at::Tensor& buffer : buffers_) before_.push_back(buffer.detach().clone());
  }
  ~BufferGuard() {
    const at::AutoGradMode no_grad(false);
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].detach().copy_(before_[i]);
  }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;

 private:
  std::vector<at::Tensor> buffers_, before_;
};

/// What one step saves: values of the graph, and the rest in bytes.
class StepCost final : public SaveHandler {
 public:
  StepCost(const Program& program, size_t step, const Program::Frame& frame)
      : attributes_(program.attributes_of(step)) {
    for (int32_t slot : program.reads(step)) {
      const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
      if (value.isTensor() && value.toTensor().defined()) arguments_.emplace_back(slot, value.toTensor());
    }
  }

  std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) override {
    const auto in = [&](const at::Tensor& whole) { return find_in(tensor, whole).has_value(); };
    if (std::ranges::any_of(attributes_, in)) return forgotten();
    for (const auto& [slot, argument] : arguments_) {
      if (!in(argument)) continue;
      slots_.push_back(slot);
      return forgotten();
    }
    others_.push_back(tensor.detach());
    until_last_ = seconds_since(start);
    return forgotten();
  }

  /// Behind the step.
  NodeCost cost(const Program& program, size_t step, const Program::Frame& frame,
                const std::vector<const graph::Value*>& values) {
    NodeCost found;
    std::unordered_set<const c10::StorageImpl*> seen;
    for (const at::Tensor& other : others_) {
      const auto holds = [&](int32_t slot) {
        const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
        return value.isTensor() && find_in(other, value.toTensor()).has_value();
      };
      const auto written = program.writes(step);
      const auto result = std::ranges::find_if(written, holds);
      if (result != written.end())
        slots_.push_back(*result);
      else if (!other.has_storage() || seen.insert(other.storage().unsafeGetStorageImpl()).second)
        found.inner_bytes += bytes_of(other);
    }
    if (found.inner_bytes > 0) found.inner_seconds = until_last_;
    std::ranges::sort(slots_);
    slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());
    for (int32_t slot : slots_) found.saved.push_back(values[static_cast<size_t>(slot)]);
    return found;
  }

  bool is_of_attribute(const at::Tensor& tensor) const {
    return std::ranges::any_of(attributes_, [&](const at::Tensor& attribute) {
      return tensor.has_storage() && attribute.has_storage() && tensor.is_alias_of(attribute);
    });
  }
  const std::vector<std::pair<int32_t, at::Tensor>>& arguments() const { return arguments_; }
  Clock::time_point start = Clock::now();

 private:
  std::vector<at::Tensor> attributes_, others_;
  std::vector<std::pair<int32_t, at::Tensor>> arguments_;
  std::vector<int32_t> slots_;
  double until_last_ = 0;
};

class Meter {
 public:
  explicit Meter(const graph::Graph& graph) : order_(graph), program_(graph) {
    values_.resize(program_.slot_count());
    for (const graph::Value* input : graph.inputs())
      values_[static_cast<size_t>(program_.slot_of(input))] = input;
    for (const graph::Node* call : order_.calls) {
      for (const auto& value : call->outputs())
        values_[static_cast<size_t>(program_.slot_of(value.get()))] = value.get();
    }
  }

  void run(const std::vector<at::Tensor>& inputs, bool training) {
    program_.run(inputs, training, [this](Program::Frame& frame) {
      for (size_t step = 0; step < program_.step_count(); ++step) {
        if (!program_.is_left_out(step, frame)) run_step(step, frame);
      }
    });
  }

  Costs costs;

 private:
  void run_step(size_t step, Program::Frame& frame) {
    StepCost handler(program_, step, frame);
    program_.load_arguments(step, frame);
    {
      const SaveScope scope(&handler);
      handler.start = Clock::now();
      program_.call(step, frame);
    }
    const double seconds = seconds_since(handler.start);
    program_.store(step, frame);
    NodeCost cost = handler.cost(program_, step, frame, values_);
    cost.seconds = seconds;
    const auto known = costs.nodes.find(order_.calls[step]);
    if (known != costs.nodes.end()) {
      cost.seconds = std::min(cost.seconds, known->second.seconds);
      cost.inner_seconds = std::min(cost.inner_seconds, known->second.inner_seconds);
    }
    costs.nodes[order_.calls[step]] = std::move(cost);
    for (int32_t slot : program_.writes(step)) note_bytes(slot, frame, handler);
  }

  void note_bytes(int32_t slot, const Program::Frame& frame, const StepCost& handler) {
    const c10::IValue& result = frame.slots[static_cast<size_t>(slot)];
    if (!result.isTensor() || !result.toTensor().defined()) return;
    const graph::Value* value = values_[static_cast<size_t>(slot)];
    if (handler.is_of_attribute(result.toTensor())) {
      costs.bytes[value] = 0;  // a view of a parameter, which is there anyway
      return;
    }
    for (const auto& [other, argument] : handler.arguments()) {
      if (!result.toTensor().has_storage() || !argument.has_storage() ||
          !result.toTensor().is_alias_of(argument))
        continue;
      const graph::Value* whole = values_[static_cast<size_t>(other)];
      const auto deeper = costs.view_of.find(whole);
      costs.view_of[value] = deeper == costs.view_of.end() ? whole : deeper->second;
      costs.bytes[value] = 0;
      return;
    }
    costs.bytes[value] = bytes_of(result.toTensor());
  }

  CallOrder order_;
  Program program_;
  std::vector<const graph::Value*> values_;  ///< by slot
};

}  // namespace

Costs measure_costs(const graph::GraphModule& module, const std::vector<at::Tensor>& inputs, int64_t runs) {
  if (runs < 1) fail("memory.measure_costs", "expected at least 1 run, got ", runs);
  const BufferGuard buffers(module);
  const RandomGuard random(RandomState::current(inputs));
  const at::AutoGradMode with_grad(true);
  Meter meter(module.graph());
  for (int64_t i = 0; i <= runs; ++i) meter.run(inputs, module.is_training());
  return std::move(meter.costs);
}

}  // namespace ulp::memory
