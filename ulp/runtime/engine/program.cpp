#include "ulp/runtime/engine/program.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "ulp/base/error.h"
#include "ulp/runtime/engine/arena.h"
#include "ulp/runtime/engine/prepacker.h"
#include "ulp/runtime/ops/conv_block.h"
#include "ulp/runtime/ops/ids.h"

namespace ulp::runtime {
namespace {

constexpr size_t kMaxInputs = 64;

/// Of a step that a later one runs.
class DoneLater final : public Runner {
 public:
  explicit DoneLater(const std::string& name) : kernel_("by rows in '" + name + "'") {}
  void run(const RunArgs&) const override {}
  std::string kernel() const override { return kernel_; }

 private:
  std::string kernel_;
};

/// Of two steps between which so many bytes do not move.
StepWork sum_of(const StepWork& a, const StepWork& b, double between) {
  return {a.math, a.operations + b.operations, a.tensor_bytes + b.tensor_bytes - between,
          a.constant_bytes + b.constant_bytes};
}

}  // namespace

std::string type_and_shape(const TensorInfo& tensor) {
  return std::string(to_string(tensor.type)) + " " + shape_text(tensor);
}

Program::Program(const VerifiedPlan& verified, Prepacker& preparer) {
  const Plan& plan = *verified;
  tensors_ = plan.tensors;
  for (const int32_t t : plan.inputs) inputs_.push_back(tensors_[static_cast<size_t>(t)]);
  for (const int32_t t : plan.outputs) outputs_.push_back(tensors_[static_cast<size_t>(t)]);
  for (const TensorInfo& tensor : tensors_) {
    independent_ = independent_ && (tensor.shape.size() > 1 || tensor.times > 1) &&
                   tensor.shape[0] == kBatch && tensor.outer == 1;
  }
  Blocks blocks = prepare_blocks(plan, preparer);
  const StoragePlan storage = assign_storage(plan, blocks.ranges);
  place_tensors(storage);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    if (step.inputs.size() > kMaxInputs) {
      fail("runtime.Engine", "expected at most ", kMaxInputs, " inputs in step '", step.name, "', got ",
           step.inputs.size());
    }
    const StepView view(plan, step, s, nullptr, &preparer.packs());
    const bool same_memory = storage.of_tensor[static_cast<size_t>(step.inputs[0])] ==
                             storage.of_tensor[static_cast<size_t>(step.output)];
    const OpDef& def = op_def(step.op);
    independent_ = independent_ && !def.keeps_batch_whole(view);
    add_table(view, plan.inputs);
    const std::shared_ptr<const Runner>& of_block = blocks.of_step[s];
    steps_.push_back({of_block ? of_block : preparer.prepare(view), step.name, step.op, step.attributes,
                      step.inputs, step.output, def.sharing(view) == Sharing::alias && same_memory,
                      def.work(view, view.times()), def.work(view, 2 * view.times()),
                      elementwise_work(view, 1).constant_bytes});
    steps_.back().times = view.times();
    if (const std::optional<Kept> kept = def.kept(view)) add_kept(*kept);
  }
  for (const StepRange& block : blocks.ranges) join(block);
}

Program::Blocks Program::prepare_blocks(const Plan& plan, Prepacker& preparer) {
  Blocks blocks;
  blocks.of_step.resize(plan.steps.size());
  for (const StepRange& range : find_conv_blocks(plan)) {
    std::vector<StepView> views;
    for (size_t s = range.first; s <= range.last; ++s)
      views.emplace_back(plan, plan.steps[s], s, nullptr, &preparer.packs());
    std::shared_ptr<const Runner> runner = preparer.prepare_block(views);
    if (runner == nullptr) continue;
    const auto later = std::make_shared<const DoneLater>(plan.steps[range.last].name);
    std::fill_n(blocks.of_step.begin() + static_cast<std::ptrdiff_t>(range.first), range.last - range.first,
                later);
    blocks.of_step[range.last] = std::move(runner);
    blocks.ranges.push_back(range);
  }
  return blocks;
}

void Program::join(const StepRange& block) {
  PreparedStep& last = steps_[block.last];
  last.inputs[0] = steps_[block.first].inputs[0];
  for (size_t s = block.first; s < block.last; ++s) {
    PreparedStep& step = steps_[s];
    // What one layer writes and the next one reads does not leave the cache.
    const auto between = 2 * static_cast<double>(byte_count(tensors_[static_cast<size_t>(step.output)], 1));
    last.one = sum_of(last.one, step.one, between);
    last.two = sum_of(last.two, step.two, 2 * between);
    last.constant_bytes += step.constant_bytes;
    step.done_later = true;
  }
}

void Program::add_kept(const Kept& kept) {
  PreparedStep& step = steps_.back();
  step.kept_at = kept_bytes_;
  step.kept_bytes = kept.item_bytes;
  kept_bytes_ += step.kept_bytes;
  last_position_ = std::min(last_position_, kept.capacity - kept.rows);
}

void Program::add_table(const StepView& view, const std::vector<int32_t>& plan_inputs) {
  const std::optional<IdUse> ids = op_def(view.step().op).ids(view);
  if (!ids) return;
  const auto input = std::ranges::find(plan_inputs, view.step().inputs[ids->input]) - plan_inputs.begin();
  if (static_cast<size_t>(input) == plan_inputs.size()) return;  // made by a step: looked at as it runs
  tables_.push_back({static_cast<size_t>(input), ids->low, ids->high, view.step().name});
}

void Program::check_ids(const Items& items) const {
  for (const Table& table : tables_) {
    const TensorInfo& info = inputs_[table.input];
    for (int64_t i = 0; i < element_count(info, items.count); ++i) {
      const int64_t id = id_at(info.type, items.in[table.input], i);
      if (id >= table.low && id < table.high) continue;
      fail("runtime.Engine.run", "expected ids in [", table.low, ", ", table.high, ") in input '", info.name,
           "' for '", table.step, "', got ", id, " at element ", i);
    }
  }
}

void Program::check_faults(const FaultSlot& faults) const {
  const IdFault* fault = faults.found();
  if (fault == nullptr) return;
  if (fault->kind == IdFault::Kind::result)
    fail("runtime.Engine.run", "expected '", steps_[fault->step].name, "' to compute integers from ",
         fault->low, " to ", fault->high - 1, ", which f32 holds, got ",
         fault->id == IdFault::kNoInteger ? "one beyond 64 bits" : std::to_string(fault->id), " at element ",
         fault->element);
  if (fault->kind == IdFault::Kind::counted)
    fail("runtime.Engine.run", "expected integers from ", fault->low, " to ", fault->high - 1,
         ", which f32 holds, for '", steps_[fault->step].name, "', got ", fault->id, " at element ",
         fault->element, " of what it reads");
  const bool no_number = fault->id == IdFault::kNoInteger;
  fail("runtime.Engine.run", "expected ids in [", fault->low, ", ", fault->high, ") for '",
       steps_[fault->step].name, "', got ", no_number ? "NaN or less than any id" : std::to_string(fault->id),
       " at element ", fault->element, " of the ids that other steps made");
}

void Program::place_tensors(const StoragePlan& storage) {
  std::vector<ArenaBuffer> buffers;
  for (const Storage& s : storage.storages) {
    // Callers' buffers take no room; keeping their place keeps the indices equal.
    buffers.push_back({s.owner == Storage::Owner::arena ? s.bytes : 0, s.first, s.last});
    largest_per_item_ = std::max(largest_per_item_, s.bytes);
  }
  const ArenaLayout layout = plan_arena(buffers);
  arena_per_item_ = layout.total;
  places_.resize(tensors_.size());
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if (storage.of_tensor[t] < 0) continue;
    const auto id = static_cast<size_t>(storage.of_tensor[t]);
    places_[t] = {storage.storages[id].owner, storage.storages[id].index, layout.offsets[id]};
  }
}

size_t Program::bytes_per_item() const {
  return std::max({arena_per_item_, largest_per_item_, size_t{1}});
}

size_t Program::region_bytes(int64_t items, int workers) const {
  size_t workspace = 0;
  for (const PreparedStep& step : steps_) {
    workspace = std::max(workspace, step.runner->workspace_bytes(step.times * items, workers));
  }
  return static_cast<size_t>(items) * arena_per_item_ + align_up(workspace);
}

std::byte* Program::address(int32_t tensor, const Region& region, const Items& items) const {
  const Place& place = places_[static_cast<size_t>(tensor)];
  const auto first = static_cast<size_t>(items.first);
  switch (place.owner) {
    case Storage::Owner::caller_input:
      // Never written: no op may take over a caller's input in place.
      return const_cast<std::byte*>(static_cast<const std::byte*>(items.in[place.index])) +
             first * byte_count(inputs_[place.index], 1);
    case Storage::Owner::caller_output:
      return static_cast<std::byte*>(items.out[place.index]) + first * byte_count(outputs_[place.index], 1);
    default:
      return region.base + place.offset * static_cast<size_t>(region.capacity);
  }
}

void Program::run_step(size_t index, const Region& region, const Items& items,
                       const Parallel& parallel) const {
  const PreparedStep& step = steps_[index];
  if (step.alias || step.done_later) return;
  std::array<const void*, kMaxInputs> pointers;
  for (size_t i = 0; i < step.inputs.size(); ++i) pointers[i] = address(step.inputs[i], region, items);
  std::byte* scratch = region.base + arena_per_item_ * static_cast<size_t>(region.capacity);
  const StepFaults faults{*items.faults, index, step.times * items.first};
  const KeptRows& kept = items.kept;
  const size_t kept_at =
      step.kept_at * static_cast<size_t>(kept.items) + step.kept_bytes * static_cast<size_t>(items.first);
  const StepMemory memory{kept.data + kept_at, step.kept_bytes, kept.position};
  step.runner->run({step.times * items.count, std::span(pointers.data(), step.inputs.size()),
                    address(step.output, region, items), scratch, parallel, faults, memory});
}

void Program::run(const Region& region, const Items& items, const Parallel& parallel) const {
  for (size_t step = 0; step < steps_.size(); ++step) run_step(step, region, items, parallel);
}

StepWork Program::work_of(size_t index, int64_t items) const {
  const PreparedStep& step = steps_[index];
  if (step.alias || step.done_later) return {};
  const kernels::Density density = step.runner->density(step.times * items);
  const auto at = [&](double StepWork::*part) {
    return step.one.*part + static_cast<double>(items - 1) * (step.two.*part - step.one.*part);
  };
  const double constants = std::min(step.constant_bytes, at(&StepWork::constant_bytes));
  return {step.one.math, density.products * at(&StepWork::operations), at(&StepWork::tensor_bytes),
          density.bytes * constants};
}

StepProfile Program::describe(size_t index, int64_t items) const {
  const PreparedStep& step = steps_[index];
  return {step.name,
          to_string(step.op),
          attributes_text(step.attributes),
          step.alias ? "none" : step.runner->kernel(),
          type_and_shape(tensors_[static_cast<size_t>(step.output)]),
          0,
          work_of(index, items),
          step.runner->note()};
}

}  // namespace ulp::runtime
