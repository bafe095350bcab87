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

std::vector<int64_t> infer_depth_to_space(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& [window, size_h, size_w] = view.attributes<DepthToSpaceAttributes>();
  view.expect_image("an input", x);
  const int64_t h = window.stride_h, w = window.stride_w;
  if (x.shape[1] % (h * w) != 0) {
    view.fail("expected channels that divide by ", h, " x ", w, ", got ", x.shape[1]);
  }
  check_extent(view, x.shape[2], h, size_h);
  check_extent(view, x.shape[3], w, size_w);
  return {x.shape[0], x.shape[1] / (h * w), size_h, size_w};
}

void check_depth_to_space_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class DepthToSpaceRunner final : public Runner {
 public:
  DepthToSpaceRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const auto& attributes = view.attributes<DepthToSpaceAttributes>();
    shape_ = {.in_h = x_.shape[2],
              .in_w = x_.shape[3],
              .channels = view.output().shape[1],
              .factor_h = attributes.window.stride_h,
              .factor_w = attributes.window.stride_w,
              .out_h = attributes.size_h,
              .out_w = attributes.size_w};
  }
  void run(const RunArgs& args) const override {
    kernels::depth_to_space(element_bytes(x_.type), shape_, first_size(x_, args.batch), args.inputs[0],
                            args.output, args.parallel);
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo x_;
  kernels::DepthToSpaceShape shape_;
};

}  // namespace

const OpDef ops::depth_to_space = {.infer = infer_depth_to_space,
                                   .check_output = check_depth_to_space_output,
                                   .work = copied_work,
                                   .prepare = make_runner<DepthToSpaceRunner>};

}  // namespace ulp::runtime
