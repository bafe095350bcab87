// Layer normalisation over the last axis, computed in f32.
#include "ulp/kernels/elementwise/rows.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_layer_norm(const StepView& view) {
  view.expect_plain_numbers(0, 2);
  const int64_t width[] = {view.input().shape.back()};
  for (const char* role : {"weight", "bias"}) {
    if (view.constant(role) != nullptr) view.expect_constant(role, DataType::f32, width);
  }
  return view.input().shape;
}

void check_layer_norm_output(const StepView& view) {
  view.expect_plain_numbers_output();
}

class LayerNormRunner final : public Runner {
 public:
  LayerNormRunner(const StepView& view, kernels::Isa isa) : info_(view.input()), isa_(isa) {
    shape_ = {.columns = info_.shape.back(),
              .input = format_of(info_),
              .output = format_of(view.output()),
              .epsilon = view.attributes<LayerNormAttributes>().epsilon};
    if (const Constant* weight = view.constant("weight")) weight_ = floats_of(*weight);
    if (const Constant* bias = view.constant("bias")) bias_ = floats_of(*bias);
  }
  size_t workspace_bytes(int64_t, int workers) const override {
    return kernels::layer_norm_workspace_bytes(shape_, workers);
  }
  void run(const RunArgs& args) const override {
    kernels::layer_norm(shape_, args.inputs[0], weight_.empty() ? nullptr : weight_.data(),
                        bias_.empty() ? nullptr : bias_.data(), args.output,
                        element_count(info_, args.batch) / shape_.columns, args.workspace, isa_,
                        args.parallel);
  }
  std::string kernel() const override { return std::string("layer_norm_") + kernels::to_string(isa_); }

 private:
  TensorInfo info_;
  kernels::LayerNormShape shape_;
  kernels::Isa isa_;
  std::vector<float> weight_, bias_;
};

/// The sum, the square of the difference and its sum, scale and shift.
StepWork layer_norm_work(const StepView& view, int64_t batch) {
  return elementwise_work(view, batch, 6);
}

}  // namespace

const OpDef ops::layer_norm = {.roles = {"weight", "bias"},
                               .infer = infer_layer_norm,
                               .check_output = check_layer_norm_output,
                               .sharing = share_in_place,
                               .work = layer_norm_work,
                               .prepare = make_runner<LayerNormRunner>};

}  // namespace ulp::runtime
