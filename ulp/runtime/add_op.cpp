// The sum of two tensors of one shape, with the activation that may follow it.
#include "ulp/kernels/elementwise.h"
#include "ulp/runtime/kernel_args.h"
#include "ulp/runtime/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  if (view.input(0).shape != view.input(1).shape) {
    view.fail("expected two inputs of one shape, got ", shape_text(view.input(0).shape), " and ",
              shape_text(view.input(1).shape));
  }
  return view.input().shape;
}

void check_output(const StepView& view) {
  for (size_t i = 0; i < view.input_count(); ++i) view.expect_same_kind(i);
}

class AddRunner final : public Runner {
 public:
  AddRunner(const StepView& view, kernels::Isa isa)
      : a_(view.input(0)),
        b_(view.input(1)),
        y_(view.output()),
        activation_(kernel_activation(view.step().activation)),
        isa_(isa) {}
  void run(const RunArgs& args) const override {
    kernels::add(element_of(y_), activation_, args.inputs[0], args.inputs[1], args.output,
                 element_count(y_, args.batch), affine_of(a_), affine_of(b_), affine_of(y_), isa_,
                 args.parallel);
  }
  std::string kernel() const override { return std::string("add_") + kernels::to_string(isa_); }

 private:
  TensorInfo a_, b_, y_;
  kernels::Activation activation_;
  kernels::Isa isa_;
};

}  // namespace

extern const OpDef kAddOp;
const OpDef kAddOp = {.op = Op::add,
                      .name = "add",
                      .min_inputs = 2,
                      .max_inputs = 2,
                      .uses = {.activation = true},
                      .infer = infer,
                      .check_output = check_output,
                      .sharing = share_in_place,
                      .prepare = make_runner<AddRunner>};

}  // namespace ulp::runtime
