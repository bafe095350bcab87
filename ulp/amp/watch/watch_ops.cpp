#include "ulp/amp/watch/watch_ops.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/amp/watch/watch_tensor.h"

namespace ulp::amp {

namespace {

std::string key_of(const OpLocation& place) {
  std::string key = place.pass == Pass::forward ? "f" : "b";
  for (const std::string* part : {&place.op, &place.path, &place.node, &place.autograd_node}) {
    key += '\n' + *part;
  }
  return key + '\n' + std::to_string(place.occurrence) + '\n' + std::to_string(place.output);
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().data() : nullptr;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.is_alias_of(b);
}

}  // namespace

void OpWatch::start_step(int64_t step, int scale_exponent) {
  step_ = step;
  scale_exponent_ = scale_exponent;
  ++samples_;
  looked_ = 0;
  tainted_.clear();
  produced_.reset();
  seen_.reset();
}

void OpWatch::visit(const OpCall& call) {
  if (call.returns_memory) return;
  if (looked_++ % stride_ != (samples_ - 1) % stride_) return;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const at::Tensor& output = call.outputs[i];
    if (!is_countable(output) || output.numel() == 0) continue;
    // A view of an input holds nothing new.
    const bool view = !call.in_place && std::any_of(call.inputs.begin(), call.inputs.end(),
                                                    [&](const auto& t) { return shares_memory(t, output); });
    if (!view) look(call, output, static_cast<int32_t>(i));
  }
}

void OpWatch::look(const OpCall& call, const at::Tensor& output, int32_t index) {
  OpLocation place = call.place;
  place.output = index;
  const at::Tensor block = countable_block(output);
  const kernels::ExponentStats stats = block_stats(block, range_.threshold());
  const auto [at, added] = index_.try_emplace(key_of(place), ops_.size());
  if (added) ops_.push_back({place, output.scalar_type(), {}});
  ops_[at->second].stats.merge(place.pass == Pass::backward ? stats.scaled(-scale_exponent_) : stats);

  if (stats.nonfinite() > 0 && !produced_ && !call.given_nonfinite) blame(call, output, block, place, stats);
  if (stats.nonfinite() > 0) {
    tainted_[memory_of(output)] = {stats.infinities > 0, stats.nans > 0};
  } else {
    tainted_.erase(memory_of(output));
  }
}

void OpWatch::blame(const OpCall& call, const at::Tensor& output, const at::Tensor& block,
                    const OpLocation& place, const kernels::ExponentStats& stats) {
  const Kinds had = kinds_of_inputs(call, output);
  const bool own = stats.nans > 0 ? !had.nans : !had.infinities && !had.nans;
  if (!own && seen_) return;
  const NonFinite found{.step = step_,
                        .place = place,
                        .index = index_at(block, stats.first_nonfinite),
                        .value = value_at(block, stats.first_nonfinite),
                        .inputs_finite = !had.infinities && !had.nans};
  if (own) produced_ = found;
  if (!seen_) seen_ = found;
}

OpWatch::Kinds OpWatch::kinds_of_inputs(const OpCall& call, const at::Tensor& output) const {
  Kinds kinds;
  for (const at::Tensor& input : call.inputs) {
    if (!is_countable(input)) continue;
    if (shares_memory(input, output)) {  // overwritten by now: what was seen of it before must do
      const auto before = tainted_.find(memory_of(input));
      if (before == tainted_.end()) continue;
      kinds.infinities = kinds.infinities || before->second.infinities;
      kinds.nans = kinds.nans || before->second.nans;
      continue;
    }
    const kernels::ExponentStats stats = block_stats(countable_block(input), range_.threshold());
    kinds.infinities = kinds.infinities || stats.infinities > 0;
    kinds.nans = kinds.nans || stats.nans > 0;
  }
  return kinds;
}

}  // namespace ulp::amp
