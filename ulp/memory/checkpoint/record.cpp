#include "ulp/memory/checkpoint/record.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/memory/checkpoint/step_handlers.h"

namespace ulp::memory {

Record::Record(std::shared_ptr<Run> run, size_t region, std::shared_ptr<Record> parent)
    : run_(std::move(run)), region_(region), parent_(std::move(parent)) {
  for (const at::Tensor& attribute : this->region().attributes)
    versions_.push_back(static_cast<int64_t>(attribute._version()));
}

bool Record::is_outside(int32_t slot) const {
  const auto index = static_cast<size_t>(slot);
  return layout().kept[index] || layout().made_by[index] < static_cast<int64_t>(region().begin);
}

void Record::enter(const Frame& frame) {
  for (int32_t slot : region().inputs) {
    const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
    if (value.isTensor() && value.toTensor().defined()) keep(slot, value.toTensor());
  }
}

void Record::keep(int32_t slot, const at::Tensor& tensor) {
  if (outside_.contains(slot)) return;
  run_->requires_grad[static_cast<size_t>(slot)] = tensor.requires_grad();
  outside_[slot] =
      std::make_unique<SourceUse>(parent_ ? parent_->value(slot, tensor) : run_->hold(slot, tensor));
}

std::shared_ptr<Source> Record::value(int32_t slot, const at::Tensor& seen) {
  if (!region().replays) return run_->hold(slot, seen);
  if (is_outside(slot)) {
    keep(slot, seen);
    return outside_.at(slot)->source();
  }
  std::weak_ptr<DerivedSource>& known = values_[slot];
  std::shared_ptr<DerivedSource> source = known.lock();
  if (!source) known = source = std::make_shared<DerivedSource>(shared_from_this(), seen);
  return source;
}

std::shared_ptr<Source> Record::inner(size_t step, size_t number, const at::Tensor& seen) {
  if (!region().replays || layout().kept_inner[step]) return run_->hold_inner(step, seen);
  auto source = std::make_shared<DerivedSource>(shared_from_this(), seen);
  inner_[{step, number}] = source;
  return source;
}

std::shared_ptr<DerivedSource> Record::wanted_inner(size_t step, size_t number) const {
  const auto found = inner_.find({step, number});
  std::shared_ptr<DerivedSource> source = found == inner_.end() ? nullptr : found->second.lock();
  return source && !source->filled() ? source : nullptr;
}

void Record::run_step(size_t step, Frame& frame) {
  ForwardStep handler(*this, step, frame);
  if (layout().random[step] && region().replays) note_random(step, RandomState::current(handler.arguments()));
  layout().program->load_arguments(step, frame);
  {
    const SaveScope scope(&handler);
    layout().program->call(step, frame);
  }
  layout().program->store(step, frame);
  for (int32_t slot : layout().program->writes(step)) {
    const c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
    if (region().replays && layout().kept[static_cast<size_t>(slot)] && value.isTensor() &&
        value.toTensor().defined())
      keep(slot, value.toTensor());
  }
  handler.finish(frame);
}

/// Replays of the segments around run the step, too.
void Record::note_random(size_t step, const RandomState& state) {
  random_[step] = state;
  if (parent_) parent_->note_random(step, state);
}

void Record::leave() {
  parent_.reset();
  const Needs needs = this->needs();
  std::erase_if(outside_, [&](const auto& entry) { return !std::ranges::count(needs.outside, entry.first); });
  std::erase_if(random_, [&](const auto& entry) {
    const size_t at = entry.first - region().begin;
    return !needs.results[at] && needs.inner[at] == 0;
  });
}

// --- the replay -------------------------------------------------------------------------------------------

void Record::add_results(Needs& needs, size_t step) const {
  char& known = needs.results[step - region().begin];
  if (known) return;
  known = 1;
  add_arguments(needs, step);
}

void Record::add_arguments(Needs& needs, size_t step) const {
  if (layout().random[step]) needs.random = true;
  for (int32_t slot : layout().program->reads(step)) {
    size_t& last = needs.last_reader[slot];
    last = std::max(last, step);
    if (!is_outside(slot))
      add_results(needs, static_cast<size_t>(layout().made_by[static_cast<size_t>(slot)]));
    else if (!std::ranges::count(needs.outside, slot))
      needs.outside.push_back(slot);
  }
}

Record::Needs Record::needs() const {
  Needs needs;
  needs.results.assign(region().end - region().begin, 0);
  needs.inner.assign(region().end - region().begin, 0);
  const auto waits = [](const auto& entry) {
    const auto source = entry.second.lock();
    return source && !source->filled();
  };
  for (const auto& entry : values_) {
    if (waits(entry))
      add_results(needs, static_cast<size_t>(layout().made_by[static_cast<size_t>(entry.first)]));
  }
  for (const auto& entry : inner_) {
    const auto [step, number] = entry.first;
    if (!waits(entry)) continue;
    int64_t& count = needs.inner[step - region().begin];
    count = std::max(count, static_cast<int64_t>(number) + 1);
    add_arguments(needs, step);
  }
  return needs;
}

void Record::check_unchanged() const {
  if (layout().stale)
    fail("memory.backward",
         "expected the graph that the forward pass ran, got one that was compiled again since");
  for (size_t i = 0; i < versions_.size(); ++i) {
    if (static_cast<int64_t>(region().attributes[i]._version()) == versions_[i]) continue;
    fail("memory.backward", "expected parameters as the forward pass left them, got one of sizes ",
         region().attributes[i].sizes(), " that was written to since");
  }
}

void Record::replay() {
  check_unchanged();
  const Needs needs = this->needs();
  Frame frame;
  frame.slots.resize(layout().program->slot_count());
  frame.sizes = run_->sizes;
  frame.training = run_->training;
  const AutocastGuard autocast(run_->autocast);
  const at::AutoGradMode with_grad(true);
  const RandomGuards random(needs.random ? random_ : std::map<size_t, RandomState>{});
  layout().program->run_guarded(frame, [&](Frame& running) {
    for (size_t step = region().begin; step < region().end; ++step) {
      const size_t at = step - region().begin;
      if (needs.results[at] || needs.inner[at] > 0) replay_step(step, running, needs);
    }
  });
}

void Record::replay_step(size_t step, Frame& frame, const Needs& needs) {
  const graph::Program& program = *layout().program;
  for (int32_t slot : program.reads(step)) {
    c10::IValue& value = frame.slots[static_cast<size_t>(slot)];
    const auto source = outside_.find(slot);
    if (!value.isNone() || source == outside_.end()) continue;
    at::Tensor tensor = source->second->take().detach();
    value = tensor.set_requires_grad(run_->requires_grad[static_cast<size_t>(slot)]);
  }
  const size_t at = step - region().begin;
  if (layout().random[step]) random_.at(step).restore();
  program.load_arguments(step, frame);
  if (layout().updates_statistics[step]) protect_statistics(program.node(step), frame);
  ReplayStep handler(*this, step, needs.results[at] ? -1 : needs.inner[at]);
  bool finished = true;
  try {
    const SaveScope scope(&handler);
    program.call(step, frame);
  } catch (const EnoughSaved&) {
    finished = false;
  }
  if (finished) {
    program.store(step, frame);
    fill_values(step, frame);
  }
  for (int32_t slot : program.reads(step)) {
    if (needs.last_reader.at(slot) == step) frame.slots[static_cast<size_t>(slot)] = {};
  }
  for (int32_t slot : program.writes(step)) {
    if (!needs.last_reader.contains(slot)) frame.slots[static_cast<size_t>(slot)] = {};
  }
}

void Record::fill_values(size_t step, const Frame& frame) {
  for (int32_t slot : layout().program->writes(step)) {
    const auto found = values_.find(slot);
    const std::shared_ptr<DerivedSource> source = found == values_.end() ? nullptr : found->second.lock();
    if (source && !source->filled()) source->fill(frame.slots[static_cast<size_t>(slot)].toTensor());
  }
}

}  // namespace ulp::memory
