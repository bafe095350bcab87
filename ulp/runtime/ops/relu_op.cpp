// Activations that lower could not fuse into the step before them.
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_relu(const StepView& view) {
  if (view.attributes<ActivationAttributes>().activation == Activation::none)
    view.fail("expected an activation, got none");
  return view.input().shape;
}

void check_relu_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_curve_on_f32(view.attributes<ActivationAttributes>().activation);
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class ReluRunner final : public Runner {
 public:
  ReluRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()), activation_(view.attributes<ActivationAttributes>().activation), isa_(isa) {}
  void run(const RunArgs& args) const override {
    kernels::activate(info_.type, activation_, args.inputs[0], args.output, element_count(info_, args.batch),
                      affine_of(info_), isa_, args.parallel);
  }
  std::string kernel() const override { return std::string("activate_") + kernels::to_string(isa_); }

 private:
  TensorInfo info_;
  Activation activation_;
  kernels::Isa isa_;
};

}  // namespace

const OpDef ops::relu = {.infer = infer_relu,
                         .check_output = check_relu_output,
                         .sharing = share_in_place,
                         .prepare = make_runner<ReluRunner>};

}  // namespace ulp::runtime
