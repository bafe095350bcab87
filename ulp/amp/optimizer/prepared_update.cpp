#include "ulp/amp/optimizer/prepared_update.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"

namespace ulp::amp {

namespace {

constexpr const char* kPreparedUpdateWhere = "amp.PreparedUpdate";

/// What a prepared tensor was made from: where one of these has changed, it is made anew.
struct PreparedFrom {
  const FusedParamState* state = nullptr;
  const void *momentum = nullptr, *first = nullptr, *second = nullptr;
  const void* parameter = nullptr;
  const uint8_t* mask = nullptr;
  MomentFormat moments = MomentFormat::fp32;
  size_t rule = 0;
  bool has_momentum = false;
  bool operator==(const PreparedFrom&) const = default;
};

const void* begin_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

PreparedFrom prepared_from(const FusedOptimizer& optimizer, const at::Tensor& parameter,
                           const FusedOptions& options) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return {};
  const auto& state = static_cast<const FusedParamState&>(*found->second);
  const FusedMask* mask = optimizer.mask_of(parameter);
  const auto* sgd = std::get_if<SgdRule>(&options.rule);
  return {.state = &state,
          .momentum = begin_of(state.momentum_buffer),
          .first = begin_of(state.exp_avg),
          .second = begin_of(state.exp_avg_sq),
          .parameter = parameter.const_data_ptr(),
          .mask = mask == nullptr ? nullptr : mask->bits.const_data_ptr<uint8_t>(),
          .moments = options.moments,
          .rule = options.rule.index(),
          .has_momentum = sgd != nullptr && sgd->momentum != 0};
}

/// The numbers of one group's step, once for all parameters that have made as many.
struct GroupNumbers {
  int64_t count = -1;  ///< -1: not in this step
  kernels::UpdateStep step;
};

GradientEntry entry_of(FusedOptimizer& optimizer, const PreparedGradient& of) {
  uint32_t ordinal = 0;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& parameters = optimizer.param_groups()[group].params();
    for (size_t i = 0; i < parameters.size(); ++i, ++ordinal) {
      if (parameters[i].is_same(of.parameter))
        return {group, i, ordinal, of.parameter, of.gradient, {}, of.parameter};
    }
  }
  fail(kPreparedUpdateWhere, "expected a parameter of the optimizer, got another tensor of sizes ",
       of.parameter.sizes());
}

/// An error unless a gradient lies in memory as its parameter does; strides of dimensions of size 1 mean nothing.
void check_layout_of(const GradientEntry& of) {
  const at::Tensor &parameter = of.parameter, &gradient = of.gradient;
  bool fits = parameter.device().is_cpu() && gradient.device().is_cpu() &&
              parameter.scalar_type() == c10::kFloat && gradient.scalar_type() == c10::kFloat &&
              parameter.sizes() == gradient.sizes();
  if (fits && parameter.strides() == gradient.strides()) return;
  for (int64_t d = 0; fits && d < parameter.dim(); ++d)
    fits = parameter.size(d) == 1 || parameter.stride(d) == gradient.stride(d);
  if (fits) return;
  fail(kPreparedUpdateWhere, "expected an fp32 parameter and a gradient laid out as it is, got ",
       parameter.dtype(), ' ', parameter.sizes(), " and ", gradient.dtype(), ' ', gradient.sizes(), " for ",
       parameter_name(of.group, of.index));
}

}  // namespace

struct PreparedUpdate::Parts {
  struct Entry {
    GradientEntry of;
    PreparedFrom from;
    const FusedOptions* options = nullptr;  ///< of its group, since check()
    kernels::UpdateStep own;                ///< where it is not the group's
    bool changed = true;                    ///< since it was prepared; check() finds out
    bool fills_momentum = false;            ///< in the next step, which is its first
  };
  FusedOptimizer& optimizer;
  std::vector<Entry> entries;
  std::vector<GroupNumbers> groups;
  std::vector<kernels::OptimizerTensor> tensors;
  std::vector<double> sums = {};  ///< of squares, for their room

  static FusedParamState& state_of(Entry& entry, FusedOptimizer& optimizer) {
    return static_cast<FusedParamState&>(
        *optimizer.state().find(entry.of.parameter.unsafeGetTensorImpl())->second);
  }

  bool is_in_place(const GradientEntry& of) const {
    const auto& all = optimizer.param_groups();
    return of.group < all.size() && of.index < all[of.group].params().size() &&
           all[of.group].params()[of.index].is_same(of.parameter);
  }

  /// Refuses what the next step cannot take, and marks what has changed; nothing else does.
  void check() {
    bool moved = false;
    size_t group = SIZE_MAX;
    const FusedOptions* of_group = nullptr;
    for (Entry& entry : entries) {
      if (!is_in_place(entry.of))
        fail(kPreparedUpdateWhere,
             "expected the parameters that were prepared where they were, got others as ",
             parameter_name(entry.of.group, entry.of.index));
      if (group != entry.of.group) {
        group = entry.of.group;
        of_group = &options_of(optimizer.param_groups()[group]);
        validate(of_group->rule);
      }
      const FusedOptions& options = *of_group;
      entry.options = of_group;
      check_layout_of(entry.of);
      const PreparedFrom now = prepared_from(optimizer, entry.of.parameter, options);
      entry.changed = entry.from.state == nullptr || now != entry.from;
      if (!entry.changed) continue;
      moved = moved || entry.from.parameter != entry.of.parameter.const_data_ptr();
      check_parameter(entry.of.parameter, options.masters, false, entry.of.group, entry.of.index);
      const auto state = optimizer.state().find(entry.of.parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end())
        check_state(static_cast<const FusedParamState&>(*state->second), entry.of, options);
      entry.of.mask = mask_bits(optimizer, entry.of);
    }
    if (!moved) return;
    std::vector<ParameterMemory> memory;
    for (const Entry& entry : entries) memory.push_back({entry.of.parameter, entry.of.group, entry.of.index});
    check_apart(std::move(memory));
  }

  void prepare(size_t i) {
    Entry& entry = entries[i];
    const void* const momentum = entry.from.momentum;
    tensors[i] = prepare_update(optimizer, entry.of, entry.own);
    entry.from =
        prepared_from(optimizer, entry.of.parameter, options_of(optimizer.param_groups()[entry.of.group]));
    entry.fills_momentum = entry.own.first_step || (entry.fills_momentum && entry.from.momentum == momentum);
    entry.own.first_step = entry.fills_momentum;
  }

  /// Brings the tensors up to date for the next step, after check().
  void begin_step() {
    for (GroupNumbers& group : groups) group.count = -1;
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry& entry = entries[i];
      const FusedOptions& options = *entry.options;
      if (entry.changed) {
        prepare(i);
        continue;
      }
      const int64_t count = entry.from.state->step + 1;
      GroupNumbers& numbers = groups[entry.of.group];
      if (numbers.count == -1) numbers = {count, update_numbers(options.rule, count)};
      if (numbers.count == count && !entry.fills_momentum) {
        tensors[i].step = &numbers.step;
      } else {
        entry.own = update_numbers(options.rule, count);
        entry.own.first_step = entry.fills_momentum;
        tensors[i].step = &entry.own;
      }
      // The lower half is the parameter's place among all.
      tensors[i].random = {optimizer.seed(),
                           static_cast<uint64_t>(count) << 32 | (tensors[i].random.stream & 0xffffffffU)};
    }
  }

  /// Of the gradients of elements that are trained.
  double square_sum(const Parallel* parallel) {
    bool masked = false;
    for (size_t i = 0; i < entries.size(); ++i) {
      const FusedMask* mask = optimizer.mask_of(entries[i].of.parameter);
      tensors[i].mask = mask == nullptr ? nullptr : mask->bits.const_data_ptr<uint8_t>();
      masked = masked || mask != nullptr;
    }
    if (masked) {
      const SerialParallel alone;
      const Parallel& threads = parallel == nullptr ? static_cast<const Parallel&>(alone) : *parallel;
      return kernels::gradient_square_sum(tensors, kernels::selected_isa(), threads);
    }
    return kernels::gradient_square_sum(tensors, kernels::selected_isa(), parallel, sums);
  }
};

PreparedUpdate::PreparedUpdate(FusedOptimizer& optimizer, std::vector<PreparedGradient> gradients)
    : parts_(std::make_unique<Parts>(Parts{optimizer, {}, {}, {}})) {
  if (optimizer.host_copies() != nullptr)
    fail(kPreparedUpdateWhere,
         "expected an optimizer beside its parameters, got one with OffloadOptions::to_host");
  if (optimizer.device_updater() != nullptr)
    fail(kPreparedUpdateWhere, "expected an optimizer that the host steps, got one whose device does");
  std::vector<ParameterMemory> memory;
  for (const PreparedGradient& gradient : gradients) {
    Parts::Entry& entry =
        parts_->entries.emplace_back(Parts::Entry{entry_of(optimizer, gradient), {}, nullptr, {}});
    const FusedOptions& options = options_of(optimizer.param_groups()[entry.of.group]);
    check_parameter(gradient.parameter, options.masters, false, entry.of.group, entry.of.index);
    check_layout_of(entry.of);
    memory.push_back({gradient.parameter, entry.of.group, entry.of.index});
  }
  check_apart(std::move(memory));
  parts_->groups.resize(optimizer.param_groups().size());
  for (const Parts::Entry& entry : parts_->entries) {
    kernels::OptimizerTensor& tensor = parts_->tensors.emplace_back();
    tensor.size = entry.of.parameter.numel();
    tensor.gradient = entry.of.gradient.const_data_ptr();
  }
  parts_->sums.resize(static_cast<size_t>(kernels::gradient_chunks(parts_->tensors)));
}

PreparedUpdate::PreparedUpdate(PreparedUpdate&&) noexcept = default;
PreparedUpdate::~PreparedUpdate() = default;

void PreparedUpdate::settle() {
  const at::NoGradGuard no_grad;
  parts_->check();
  for (size_t i = 0; i < parts_->entries.size(); ++i) {
    const auto& options = options_of(parts_->optimizer.param_groups()[parts_->entries[i].of.group]);
    const auto* sgd = std::get_if<SgdRule>(&options.rule);
    // A momentum buffer is made by the step that fills it.
    if (sgd == nullptr || sgd->momentum == 0) parts_->prepare(i);
  }
}

int64_t PreparedUpdate::next_step() const {
  if (parts_->entries.empty()) return 1;
  const auto& states = parts_->optimizer.state();
  const auto found = states.find(parts_->entries.front().of.parameter.unsafeGetTensorImpl());
  return found == states.end() ? 1 : static_cast<const FusedParamState&>(*found->second).step + 1;
}

FusedStepResult PreparedUpdate::apply(std::optional<double> max_norm, bool check_finite,
                                      const Parallel* parallel) {
  const at::NoGradGuard no_grad;
  if (max_norm && !(*max_norm > 0)) fail(kPreparedUpdateWhere, "expected max_norm > 0, got ", *max_norm);
  parts_->check();
  FusedStepResult done{.result = StepResult::stepped, .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  if (max_norm || check_finite) {
    done.grad_norm = std::sqrt(parts_->square_sum(parallel));
    if (!std::isfinite(done.grad_norm)) {
      done.result = StepResult::skipped_nonfinite;
      return done;
    }
    if (max_norm) done.clip_factor = std::min(1.0, *max_norm / (done.grad_norm + 1e-6));
  }
  parts_->begin_step();
  kernels::update_parameters(parts_->tensors, 1.0F, static_cast<float>(done.clip_factor),
                             kernels::selected_isa(), parallel);
  for (Parts::Entry& entry : parts_->entries) {
    entry.fills_momentum = false;
    Parts::state_of(entry, parts_->optimizer).step += 1;
    // Autograd and the autocast cache recognise changed values by their version.
    entry.of.parameter.unsafeGetTensorImpl()->bump_version();
  }
  return done;
}

}  // namespace ulp::amp
