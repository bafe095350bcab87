// What convolutions have in common, whatever their numbers: the shape of the result, the layer of a step, and running one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ulp/kernels/conv/conv_block.h"
#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/ops/kernel_variants.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {

/// The data of a constant, or null where the step has none of this role.
template <typename T>
const T* constant_data(const StepView& view, const char* role) {
  const Constant* constant = view.constant(role);
  return constant == nullptr ? nullptr : reinterpret_cast<const T*>(constant->bytes.data());
}

/// Input 0, images, with so many channels after a window has passed over it; fails unless the window fits the padded input.
std::vector<int64_t> convolved(const StepView& view, const Window& window, int64_t channels);

/// What a conv step computes; weights are those of the plan.
kernels::BlockLayer conv_layer(const StepView& view);

/// The rules of the step's plan.
PackRules rules_of(const StepView& view);

/// How many items a run usually takes, where an item of the batch holds `per_item` images or rows.
ItemRange usual_items(const StepView& view, int64_t per_item);

/// Runs a layer over images or rows.
class ConvRunner final : public Runner {
 public:
  /// `per_item`: images or rows in an item of the batch `x`.
  ConvRunner(std::shared_ptr<const LayerForm> form, const TensorInfo& x, int64_t per_item)
      : form_(std::move(form)),
        batched_(x.shape[0] == kBatch),
        rows_(batched_ ? per_item : x.shape[0] * per_item) {}

  size_t workspace_bytes(int64_t batch, int workers) const override {
    return form_->layer->workspace_bytes(items(batch), workers);
  }
  void run(const RunArgs& args) const override {
    form_->layer->run(items(args.batch), args.inputs[0], args.inputs.size() == 2 ? args.inputs[1] : nullptr,
                      args.output, args.workspace, args.parallel);
  }
  std::string kernel() const override { return form_->layer->name(); }
  std::string note() const override { return form_->note; }
  kernels::Density density(int64_t batch) const override { return form_->layer->density(items(batch)); }

 private:
  int64_t items(int64_t batch) const { return batched_ ? batch * rows_ : rows_; }

  std::shared_ptr<const LayerForm> form_;
  bool batched_;
  int64_t rows_;  ///< images or rows per batch item, or in all when the batch dimension is fixed
};

}  // namespace ulp::runtime
