#include "ulp/runtime/engine/storage.h"

#include <algorithm>
#include <numeric>

#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

class Assigner {
 public:
  Assigner(const Plan& plan, std::span<const StepRange> blocks)
      : plan_(plan),
        runs_with_(plan.steps.size()),
        last_use_(plan.tensors.size(), -1),
        output_index_(plan.tensors.size(), -1) {
    result_.of_tensor.assign(plan.tensors.size(), -1);
    std::iota(runs_with_.begin(), runs_with_.end(), 0);
    for (const StepRange& block : blocks) {
      for (size_t s = block.first; s < block.last; ++s) runs_with_[s] = static_cast<int>(block.last);
    }
  }

  StoragePlan assign() {
    const int end = static_cast<int>(plan_.steps.size());
    for (int s = 0; s < end; ++s) {
      for (const int32_t t : plan_.steps[static_cast<size_t>(s)].inputs)
        last_use_[static_cast<size_t>(t)] = runs_with_[static_cast<size_t>(s)];
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const auto t = static_cast<size_t>(plan_.outputs[i]);
      output_index_[t] = static_cast<int>(i);
      last_use_[t] = end;
    }
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      create(static_cast<size_t>(plan_.inputs[i]), Storage::Owner::caller_input, i, 0);
    }
    for (int s = 0; s < end; ++s) {
      if (runs_with_[static_cast<size_t>(s)] == s) place_output(s);
    }
    return std::move(result_);
  }

 private:
  void place_output(int s) {
    const Step& step = plan_.steps[static_cast<size_t>(s)];
    const StepView view(plan_, step, static_cast<size_t>(s));
    const auto out = static_cast<size_t>(step.output);
    const Sharing sharing = op_def(step.op).sharing(view);
    if (sharing != Sharing::none) {
      for (const int32_t input : step.inputs) {
        if (may_share(static_cast<size_t>(input), out, sharing, s))
          return join(static_cast<size_t>(input), out);
      }
    }
    const bool is_output = output_index_[out] >= 0;
    create(out, is_output ? Storage::Owner::caller_output : Storage::Owner::arena,
           is_output ? static_cast<size_t>(output_index_[out]) : 0, s);
  }

  bool may_share(size_t input, size_t out, Sharing sharing, int s) const {
    const Storage& storage = result_.storages[static_cast<size_t>(result_.of_tensor[input])];
    // Memory that ends in the caller's output buffer cannot be two outputs, nor start as an input.
    if (output_index_[out] >= 0 && storage.owner != Storage::Owner::arena) return false;
    // A fixed first dimension and the batch are the same bytes at one batch size only.
    if (storage.batched != batch_dimension(plan_.tensors[out]).has_value()) return false;
    if (byte_count(plan_.tensors[input], 1) != byte_count(plan_.tensors[out], 1)) return false;
    if (sharing == Sharing::alias) return true;
    return storage.owner == Storage::Owner::arena && storage.last <= s;
  }

  void create(size_t tensor, Storage::Owner owner, size_t index, int step) {
    const TensorInfo& info = plan_.tensors[tensor];
    result_.of_tensor[tensor] = static_cast<int>(result_.storages.size());
    result_.storages.push_back({owner, index, byte_count(info, 1), batch_dimension(info).has_value(), step,
                                std::max(step, last_use_[tensor])});
  }

  void join(size_t input, size_t out) {
    const int id = result_.of_tensor[input];
    Storage& storage = result_.storages[static_cast<size_t>(id)];
    result_.of_tensor[out] = id;
    storage.last = std::max(storage.last, last_use_[out]);
    if (output_index_[out] >= 0) {
      storage.owner = Storage::Owner::caller_output;
      storage.index = static_cast<size_t>(output_index_[out]);
    }
  }

  const Plan& plan_;
  std::vector<int> runs_with_;     // the step that a step runs with: itself, or the last one of its block
  std::vector<int> last_use_;      // step, or the number of steps for an output of the plan
  std::vector<int> output_index_;  // -1 for a tensor the caller does not see
  StoragePlan result_;
};

}  // namespace

StoragePlan assign_storage(const Plan& plan, std::span<const StepRange> blocks) {
  return Assigner(plan, blocks).assign();
}

}  // namespace ulp::runtime
