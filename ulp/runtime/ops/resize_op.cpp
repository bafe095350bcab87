// Images of another size by nearest neighbours or bilinear interpolation.
#include "ulp/kernels/image/resize.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  const TensorInfo& x = view.input();
  const Step& step = view.step();
  view.expect_image("an input", x);
  if (step.align_corners && step.op == Op::resize_nearest) view.fail("align_corners is for resize_bilinear");
  return {x.shape[0], x.shape[1], step.size_h, step.size_w};
}

void check_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class ResizeRunner final : public Runner {
 public:
  ResizeRunner(const StepView& view, kernels::Isa)
      : x_(view.input()), nearest_(view.step().op == Op::resize_nearest) {
    const Step& step = view.step();
    const auto axis = [&](int64_t in, int64_t out) {
      return nearest_ ? kernels::nearest_axis(in, out) : kernels::bilinear_axis(in, out, step.align_corners);
    };
    rows_ = axis(x_.shape[2], step.size_h);
    columns_ = axis(x_.shape[3], step.size_w);
  }
  void run(const RunArgs& args) const override {
    const int64_t batch = first_size(x_, args.batch), channels = x_.shape[1];
    if (nearest_) {
      kernels::resize_nearest(static_cast<int64_t>(element_size(x_.type)), rows_, columns_, batch, channels,
                              args.inputs[0], args.output, args.parallel);
    } else {
      kernels::resize_bilinear(x_.type, rows_, columns_, batch, channels, args.inputs[0], args.output,
                               args.parallel);
    }
  }
  std::string kernel() const override { return nearest_ ? "nearest" : "bilinear"; }

 private:
  TensorInfo x_;
  bool nearest_;
  kernels::ResizeAxis rows_, columns_;
};

}  // namespace

extern const OpDef kResizeNearestOp, kResizeBilinearOp;
const OpDef kResizeNearestOp = {.op = Op::resize_nearest,
                                .name = "resize_nearest",
                                .uses = {.size = true},
                                .infer = infer,
                                .check_output = check_output,
                                .prepare = make_runner<ResizeRunner>};
const OpDef kResizeBilinearOp = {.op = Op::resize_bilinear,
                                 .name = "resize_bilinear",
                                 .uses = {.size = true},
                                 .infer = infer,
                                 .check_output = check_output,
                                 .prepare = make_runner<ResizeRunner>};

}  // namespace ulp::runtime
