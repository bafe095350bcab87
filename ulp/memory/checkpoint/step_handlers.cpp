#include "ulp/memory/checkpoint/step_handlers.h"

#include "ulp/base/error.h"
#include "ulp/memory/checkpoint/record.h"

namespace ulp::memory {

ForwardStep::ForwardStep(Record& record, size_t step, const graph::Program::Frame& frame)
    : record_(record), step_(step), attributes_(record.layout().program->attributes_of(step)) {
  for (int32_t slot : record.layout().program->reads(step)) {
    const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    slots_.push_back(slot);
    arguments_.push_back(value.toTensor());
  }
}

std::shared_ptr<SavedTensor> ForwardStep::pack(const at::Tensor& tensor) {
  const size_t number = count_++;
  for (const at::Tensor& attribute : attributes_) {
    if (find_in(tensor, attribute)) return std::make_shared<SavedPart>(std::make_shared<HeldSource>(tensor));
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto where = find_in(tensor, arguments_[i]);
    if (!where) continue;
    auto part = std::make_shared<SavedPart>(record_.value(slots_[i], arguments_[i]), std::move(where));
    note_mask(part, slots_[i], false);
    return part;
  }
  pending_.push_back({std::make_shared<SavedPart>(), tensor.detach(), number});
  return pending_.back().saved;
}

void ForwardStep::finish(const graph::Program::Frame& frame) {
  for (const Pending& pending : pending_) {
    for (int32_t slot : record_.layout().program->writes(step_)) {
      const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
      auto where = value.isTensor() ? find_in(pending.tensor, value.toTensor()) : std::nullopt;
      if (!where) continue;
      pending.saved->set(record_.value(slot, value.toTensor()), std::move(where));
      note_mask(pending.saved, slot, true);
      break;
    }
    if (!pending.saved->is_set()) pending.saved->set(record_.inner(step_, pending.number, pending.tensor));
  }
}

void ForwardStep::note_mask(const std::shared_ptr<SavedPart>& part, int32_t slot, bool is_result) {
  const std::optional<MaskRule>& rule = record_.layout().masks[step_];
  if (rule && rule->of_result == is_result) record_.run().note_mask(part, slot, *rule);
}

std::shared_ptr<SavedTensor> ReplayStep::pack(const at::Tensor& tensor) {
  if (const auto source = record_.wanted_inner(step_, count_)) source->fill(tensor);
  ++count_;
  if (stop_after_ >= 0 && static_cast<int64_t>(count_) >= stop_after_) throw EnoughSaved{};
  return forgotten();
}

RandomGuards::RandomGuards(const std::map<size_t, RandomState>& states) {
  for (const auto& [step, state] : states) before_.push_back(state.now());
}

RandomGuards::~RandomGuards() {
  for (const RandomState& state : before_) state.restore();
}

void protect_statistics(const graph::Node& node, graph::Program::Frame& frame) {
  for (const size_t arg : statistics_of(node)) {
    c10::IValue& statistic = frame.stack.at(arg);
    if (statistic.isTensor() && statistic.toTensor().defined()) statistic = statistic.toTensor().clone();
  }
}

}  // namespace ulp::memory
