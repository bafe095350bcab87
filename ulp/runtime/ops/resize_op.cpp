// Images of another size: nearest neighbours, bilinear and bicubic interpolation. Of volumes each slice.
#include "ulp/kernels/image/resize.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

template <typename Attributes>
std::vector<int64_t> infer_resize(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<Attributes>();
  view.expect_images("an input", x);
  return resized(x.shape, attributes.size_h, attributes.size_w);
}

void check_resize_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

/// Cubic curves go beyond the numbers that they join: codes have no room for that.
void check_bicubic(const StepView& view) {
  check_resize_output(view);
  if (view.input().type == DataType::u8) view.fail("expected an input of type f32 or bf16, got u8");
}

/// The two axes: places and weights for each row and column of the result, and room to grow them in.
template <size_t taps>
size_t axes_bytes(const StepView& view) {
  const auto lines = static_cast<size_t>(rows_of(view.output()) + columns_of(view.output()));
  return 2 * lines * taps * (sizeof(int64_t) + sizeof(float));
}

int64_t images_of(const TensorInfo& x, int64_t batch) {
  return first_size(x, batch) * slices_of(x);
}

class NearestRunner final : public Runner {
 public:
  NearestRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const auto& own = view.attributes<NearestAttributes>();
    rows_ = kernels::nearest_axis(rows_of(x_), own.size_h, own.steps.step_h, own.exact);
    columns_ = kernels::nearest_axis(columns_of(x_), own.size_w, own.steps.step_w, own.exact);
  }
  void run(const RunArgs& args) const override {
    kernels::resize_nearest(element_bytes(x_.type), rows_, columns_, images_of(x_, args.batch), x_.shape[1],
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
    const auto& own = view.attributes<BilinearAttributes>();
    rows_ = kernels::bilinear_axis(rows_of(x_), own.size_h, own.align_corners, own.steps.step_h);
    columns_ = kernels::bilinear_axis(columns_of(x_), own.size_w, own.align_corners, own.steps.step_w);
  }
  void run(const RunArgs& args) const override {
    kernels::resize_bilinear(x_.type, rows_, columns_, images_of(x_, args.batch), x_.shape[1], args.inputs[0],
                             args.output, args.parallel);
  }
  std::string kernel() const override { return "bilinear"; }

 private:
  TensorInfo x_;
  kernels::ResizeAxis rows_, columns_;
};

class BicubicRunner final : public Runner {
 public:
  BicubicRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const auto& own = view.attributes<BilinearAttributes>();
    rows_ = kernels::cubic_axis(rows_of(x_), own.size_h, own.align_corners, own.steps.step_h);
    columns_ = kernels::cubic_axis(columns_of(x_), own.size_w, own.align_corners, own.steps.step_w);
  }
  void run(const RunArgs& args) const override {
    kernels::resize_bicubic(x_.type, rows_, columns_, images_of(x_, args.batch), x_.shape[1], args.inputs[0],
                            args.output, args.parallel);
  }
  std::string kernel() const override { return "bicubic"; }

 private:
  TensorInfo x_;
  kernels::CubicAxis rows_, columns_;
};

/// Each element is the sum of so many products.
template <int kTaps>
StepWork resize_work(const StepView& view, int64_t batch) {
  return picked_work(view, batch, kTaps, 2 * kTaps);
}

}  // namespace

const OpDef ops::resize_nearest = {.infer = infer_resize<NearestAttributes>,
                                   .check_output = check_resize_output,
                                   .prepared_bytes = axes_bytes<2>,
                                   .work = copied_work,
                                   .prepare = make_runner<NearestRunner>};
const OpDef ops::resize_bilinear = {.infer = infer_resize<BilinearAttributes>,
                                    .check_output = check_resize_output,
                                    .prepared_bytes = axes_bytes<2>,
                                    .work = resize_work<4>,
                                    .prepare = make_runner<BilinearRunner>};
const OpDef ops::resize_bicubic = {.infer = infer_resize<BilinearAttributes>,
                                   .check_output = check_bicubic,
                                   .prepared_bytes = axes_bytes<4>,
                                   .work = resize_work<16>,
                                   .prepare = make_runner<BicubicRunner>};

}  // namespace ulp::runtime
