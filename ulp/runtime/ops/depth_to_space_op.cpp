// Channels become pixels: how a transposed convolution ends (graph/passes/pass.h).
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

void check_extent(const StepView& view, int64_t in, int64_t factor, int64_t out) {
  if (out > in * factor || out <= (in - 1) * factor) {
    view.fail("expected a size above ", (in - 1) * factor, " and up to ", in * factor, ", got ", out);
  }
}

std::vector<int64_t> infer(const StepView& view) {
  const TensorInfo& x = view.input();
  const Step& step = view.step();
  view.expect_image("an input", x);
  const int64_t h = step.window.stride_h, w = step.window.stride_w;
  Window factors;
  factors.stride_h = h;
  factors.stride_w = w;
  if (step.window != factors) view.fail("expected a window of strides only");
  if (x.shape[1] % (h * w) != 0) {
    view.fail("expected channels that divide by ", h, " x ", w, ", got ", x.shape[1]);
  }
  check_extent(view, x.shape[2], h, step.size_h);
  check_extent(view, x.shape[3], w, step.size_w);
  return {x.shape[0], x.shape[1] / (h * w), step.size_h, step.size_w};
}

void check_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class DepthToSpaceRunner final : public Runner {
 public:
  DepthToSpaceRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const Step& step = view.step();
    shape_ = {.in_h = x_.shape[2],
              .in_w = x_.shape[3],
              .channels = view.output().shape[1],
              .factor_h = step.window.stride_h,
              .factor_w = step.window.stride_w,
              .out_h = step.size_h,
              .out_w = step.size_w};
  }
  void run(const RunArgs& args) const override {
    kernels::depth_to_space(static_cast<int64_t>(element_size(x_.type)), shape_, first_size(x_, args.batch),
                            args.inputs[0], args.output, args.parallel);
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo x_;
  kernels::DepthToSpaceShape shape_;
};

}  // namespace

extern const OpDef kDepthToSpaceOp;
const OpDef kDepthToSpaceOp = {.op = Op::depth_to_space,
                               .name = "depth_to_space",
                               .uses = {.window = true, .size = true},
                               .infer = infer,
                               .check_output = check_output,
                               .prepare = make_runner<DepthToSpaceRunner>};

}  // namespace ulp::runtime
