// Other sizes of the same elements in logical order, flatten to [N, rest] and a dimension of 1 more or less:
// nothing to do unless the bytes lie in another order.
#include <cstring>

#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

bool keeps_order(const TensorInfo& x) {
  return x.layout == Layout::plain || same_order(x, Layout::plain);
}

std::vector<int64_t> infer_flatten(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.shape.size() < 2) view.fail("expected an input of at least 2 dimensions, got ", shape_text(x.shape));
  int64_t rest = 1;
  for (size_t d = 1; d < x.shape.size(); ++d) rest *= x.shape[d];
  return {x.shape[0], rest};
}

std::vector<int64_t> infer_unsqueeze(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.shape.size() != 3) view.fail("expected an input of 3 dimensions, got ", shape_text(x.shape));
  return {x.shape[0], x.shape[1], 1, x.shape[2]};
}

std::vector<int64_t> infer_squeeze(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.shape.size() != 4 || x.shape[2] != 1) {
    view.fail("expected an input [N, C, 1, L], got ", shape_text(x.shape));
  }
  return {x.shape[0], x.shape[1], x.shape[3]};
}

void check_flatten_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  if (view.output().layout != Layout::plain) view.fail("expected an output of layout plain");
}

Sharing flatten_sharing(const StepView& view) {
  return keeps_order(view.input()) ? Sharing::alias : Sharing::none;
}

class FlattenRunner final : public Runner {
 public:
  FlattenRunner(const StepView& view, kernels::Isa) : x_(view.input()), copy_(keeps_order(x_)) {}
  void run(const RunArgs& args) const override {
    if (copy_) {
      std::memcpy(args.output, args.inputs[0], byte_count(x_, args.batch));
      return;
    }
    kernels::nhwc_to_nchw(element_bytes(x_.type), args.inputs[0], args.output, first_size(x_, args.batch),
                          x_.shape[1], pixels_of(x_), args.parallel);
  }
  std::string kernel() const override { return copy_ ? "copy" : "nhwc_to_nchw"; }

 private:
  TensorInfo x_;
  bool copy_;
};

}  // namespace

const OpDef ops::flatten = {.infer = infer_flatten,
                            .check_output = check_flatten_output,
                            .sharing = flatten_sharing,
                            .work = copied_work,
                            .prepare = make_runner<FlattenRunner>};
const OpDef ops::unsqueeze = {.infer = infer_unsqueeze,
                              .check_output = check_flatten_output,
                              .sharing = flatten_sharing,
                              .work = copied_work,
                              .prepare = make_runner<FlattenRunner>};
const OpDef ops::squeeze = {.infer = infer_squeeze,
                            .check_output = check_flatten_output,
                            .sharing = flatten_sharing,
                            .work = copied_work,
                            .prepare = make_runner<FlattenRunner>};

}  // namespace ulp::runtime
