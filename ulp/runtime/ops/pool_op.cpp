// Max and average pooling, and the mean over the whole image.
#include <cmath>

#include "ulp/kernels/image/pool.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

/// PyTorch's rule: ceil_mode rounds up, but the last window must start inside the image or its left padding.
int64_t pool_extent(const StepView& view, bool ceil_mode, int64_t in, int64_t kernel, int64_t stride,
                    int64_t pad, int64_t dilation) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  // PyTorch has the same limit; it also gives every mean at least one element.
  if (pad * 2 > kernel || pad >= kernel) {
    view.fail("expected a padding of at most half the kernel ", kernel, ", got ", pad);
  }
  const int64_t room = in + 2 * pad - reach;
  if (room < 0) view.fail("expected a window that fits the padded input ", in + 2 * pad, ", got ", reach);
  int64_t out = room / stride + 1;
  if (ceil_mode && room % stride != 0 && out * stride < in + pad) ++out;
  return out;
}

std::vector<int64_t> infer_pool(const StepView& view) {
  const TensorInfo& x = view.input();
  const PoolWindow& w = view.attributes<PoolAttributes>().window;
  view.expect_images("an input", x);
  if (view.step().op == Op::avg_pool && (w.dilation_h != 1 || w.dilation_w != 1)) {
    view.fail("average pooling has no dilation");
  }
  if (view.step().op == Op::max_pool && !w.count_include_pad)
    view.fail("count_include_pad is for average pooling");
  if (view.step().op == Op::max_pool && view.attributes<PoolAttributes>().rounding != MeanRounding::half_even)
    view.fail("rounding is for average pooling");
  return resized(
      x.shape, pool_extent(view, w.ceil_mode, rows_of(x), w.kernel_h, w.stride_h, w.pad_h, w.dilation_h),
      pool_extent(view, w.ceil_mode, columns_of(x), w.kernel_w, w.stride_w, w.pad_w, w.dilation_w));
}

std::vector<int64_t> infer_global(const StepView& view) {
  view.expect_image("an input", view.input());
  return {view.input().shape[0], view.input().shape[1], 1, 1};
}

void check_max(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

/// A mean may change its scale on the way out.
void check_average(const StepView& view) {
  const TensorInfo& x = view.input();
  view.expect_activation_type(x);
  view.expect_type("an output", view.output().type, x.type);
  view.expect_same_layout(x);
  if (!std::isfinite(x.scale / view.output().scale))
    view.fail("the input's scale is too far from the output's");
}

/// What rounds codes away from 0 stays in their scale.
void check_average_pool(const StepView& view) {
  check_average(view);
  if (view.attributes<PoolAttributes>().rounding == MeanRounding::half_even) return;
  view.expect_type("an input", view.input().type, DataType::u8);
  view.expect_same_numbers(view.input());
}

class PoolRunner : public Runner {
 public:
  PoolRunner(const StepView& view, kernels::Isa isa)
      : op_(view.step().op), x_(view.input()), y_(view.output()), isa_(isa) {}
  std::string kernel() const override { return std::string(to_string(op_)) + "_" + kernels::to_string(isa_); }

 protected:
  Op op_;
  TensorInfo x_, y_;
  kernels::Isa isa_;
};

class WindowRunner final : public PoolRunner {
 public:
  WindowRunner(const StepView& view, kernels::Isa isa) : PoolRunner(view, isa) {
    const PoolWindow& window = view.attributes<PoolAttributes>().window;
    shape_.in_h = rows_of(x_);
    shape_.in_w = columns_of(x_);
    shape_.channels = x_.shape[1];
    shape_.ceil_mode = window.ceil_mode;
    set_window(shape_, window);
    include_pad_ = window.count_include_pad;
    rounding_ = view.attributes<PoolAttributes>().rounding;
  }
  void run(const RunArgs& args) const override {
    const int64_t images = first_size(x_, args.batch) * slices_of(x_);
    if (op_ == Op::max_pool) {
      kernels::max_pool(x_.type, shape_, images, args.inputs[0], args.output, isa_, args.parallel);
    } else if (rounding_ == MeanRounding::half_away) {
      kernels::avg_pool_u8(shape_, include_pad_, images, static_cast<const uint8_t*>(args.inputs[0]),
                           static_cast<uint8_t*>(args.output), x_.zero_point, isa_, args.parallel);
    } else {
      kernels::avg_pool(x_.type, shape_, include_pad_, images, args.inputs[0], args.output, affine_of(x_),
                        affine_of(y_), isa_, args.parallel);
    }
  }

 private:
  kernels::PoolShape shape_;
  bool include_pad_;
  MeanRounding rounding_;
};

class GlobalRunner final : public PoolRunner {
 public:
  using PoolRunner::PoolRunner;
  void run(const RunArgs& args) const override {
    kernels::global_avg_pool(x_.type, first_size(x_, args.batch), x_.shape[2] * x_.shape[3], x_.shape[1],
                             args.inputs[0], args.output, affine_of(x_), affine_of(y_), isa_, args.parallel);
  }
};

StepWork pool_work(const StepView& view, int64_t batch) {
  return window_work(view, batch, view.attributes<PoolAttributes>().window, 1);
}

StepWork global_work(const StepView& view, int64_t batch) {
  return reduced_work(view, batch, 1);
}

}  // namespace

const OpDef ops::max_pool = {
    .infer = infer_pool, .check_output = check_max, .work = pool_work, .prepare = make_runner<WindowRunner>};
const OpDef ops::avg_pool = {.infer = infer_pool,
                             .check_output = check_average_pool,
                             .work = pool_work,
                             .prepare = make_runner<WindowRunner>};
const OpDef ops::global_avg_pool = {.infer = infer_global,
                                    .check_output = check_average,
                                    .work = global_work,
                                    .prepare = make_runner<GlobalRunner>};

}  // namespace ulp::runtime
