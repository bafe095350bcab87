// The sum of two tensors of one shape, or of every item and a constant, with the activation that may follow.
#include <span>

#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_add(const StepView& view) {
  const TensorInfo& x = view.input();
  if (view.input_count() == 2) {
    if (view.constant("addend") != nullptr) view.fail("expected two inputs, or one and an 'addend'");
    if (x.shape != view.input(1).shape) {
      view.fail("expected two inputs of one shape, got ", shape_text(x.shape), " and ",
                shape_text(view.input(1).shape));
    }
    return x.shape;
  }
  view.expect_plain_floats(0, 2);
  view.expect_constant("addend", x.type, std::span(x.shape).subspan(1));
  return x.shape;
}

void check_add_output(const StepView& view) {
  for (size_t i = 0; i < view.input_count(); ++i) view.expect_same_kind(i);
  if (is_smooth_activation(view.attributes<ActivationAttributes>().activation))
    view.fail("expected relu or relu6 after a sum");
}

class AddRunner final : public Runner {
 public:
  AddRunner(const StepView& view, kernels::Isa isa)
      : a_(view.input(0)),
        b_(view.input_count() == 2 ? view.input(1) : view.input(0)),
        y_(view.output()),
        activation_(view.attributes<ActivationAttributes>().activation),
        isa_(isa) {
    if (const Constant* addend = view.constant("addend")) addend_ = addend->bytes;
  }
  void run(const RunArgs& args) const override {
    if (addend_.empty()) {
      add(args.inputs[0], args.inputs[1], args.output, element_count(y_, args.batch), args.parallel);
      return;
    }
    const int64_t n = item_elements(y_);
    for (int64_t item = 0; item < first_size(y_, args.batch); ++item) {
      const int64_t at = item * n * element_bytes(y_.type);
      add(static_cast<const std::byte*>(args.inputs[0]) + at, addend_.data(),
          static_cast<std::byte*>(args.output) + at, n, args.parallel);
    }
  }
  std::string kernel() const override { return std::string("add_") + kernels::to_string(isa_); }

 private:
  void add(const void* a, const void* b, void* y, int64_t n, const Parallel& parallel) const {
    kernels::add(y_.type, activation_, a, b, y, n, affine_of(a_), affine_of(b_), affine_of(y_), isa_,
                 parallel);
  }

  TensorInfo a_, b_, y_;
  Activation activation_;
  kernels::Isa isa_;
  SharedBytes addend_;  ///< of one item; empty: two inputs
};

}  // namespace

const OpDef ops::add = {.max_inputs = 2,
                        .roles = {"addend"},
                        .infer = infer_add,
                        .check_output = check_add_output,
                        .sharing = share_in_place,
                        .prepare = make_runner<AddRunner>};

}  // namespace ulp::runtime
