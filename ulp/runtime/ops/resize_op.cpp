// Images of another size by nearest neighbours or bilinear interpolation.
#include "ulp/kernels/image/resize.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

template <typename Attributes>
std::vector<int64_t> infer(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<Attributes>();
  view.expect_image("an input", x);
  return {x.shape[0], x.shape[1], attributes.size_h, attributes.size_w};
}

void check_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

/// The two axes: places and weights for each row and column of the result, and room to grow them in.
size_t axes_bytes(const StepView& view) {
  const TensorInfo& y = view.output();
  return 2 * static_cast<size_t>(y.shape[2] + y.shape[3]) * (2 * sizeof(int64_t) + sizeof(float));
}

class NearestRunner final : public Runner {
 public:
  NearestRunner(const StepView& view, kernels::Isa)
      : x_(view.input()),
        rows_(kernels::nearest_axis(x_.shape[2], view.output().shape[2])),
        columns_(kernels::nearest_axis(x_.shape[3], view.output().shape[3])) {}
  void run(const RunArgs& args) const override {
    kernels::resize_nearest(element_bytes(x_.type), rows_, columns_, first_size(x_, args.batch), x_.shape[1],
                            args.inputs[0], args.output, args.parallel);
  }
  std::string kernel() const override { return "nearest"; }

 private:
  TensorInfo x_;
  kernels::ResizeAxis rows_, columns_;
};

class BilinearRunner final : public Runner {
 public:
  BilinearRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const bool corners = view.attributes<BilinearAttributes>().align_corners;
    rows_ = kernels::bilinear_axis(x_.shape[2], view.output().shape[2], corners);
    columns_ = kernels::bilinear_axis(x_.shape[3], view.output().shape[3], corners);
  }
  void run(const RunArgs& args) const override {
    kernels::resize_bilinear(x_.type, rows_, columns_, first_size(x_, args.batch), x_.shape[1],
                             args.inputs[0], args.output, args.parallel);
  }
  std::string kernel() const override { return "bilinear"; }

 private:
  TensorInfo x_;
  kernels::ResizeAxis rows_, columns_;
};

}  // namespace

const OpDef ops::resize_nearest = {.infer = infer<NearestAttributes>,
                                   .check_output = check_output,
                                   .prepared_bytes = axes_bytes,
                                   .prepare = make_runner<NearestRunner>};
const OpDef ops::resize_bilinear = {.infer = infer<BilinearAttributes>,
                                    .check_output = check_output,
                                    .prepared_bytes = axes_bytes,
                                    .prepare = make_runner<BilinearRunner>};

}  // namespace ulp::runtime
