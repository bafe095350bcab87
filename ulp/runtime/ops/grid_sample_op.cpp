// Pixels at the places of a grid, in f32.
#include "ulp/runtime/ops/grid_sample_op.h"

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_grid_sample(const StepView& view) {
  const TensorInfo& x = view.input();
  view.expect_image("an input", x);
  view.expect_type("an input", x.type, DataType::f32);
  view.expect_plain_f32(1, 4);
  const std::vector<int64_t>& grid = view.input(1).shape;
  if (grid.size() != 4 || grid[0] != x.shape[0] || grid[3] != 2) {
    view.fail("expected a grid [N, rows, columns, 2] for ", shape_text(x.shape), ", got ", shape_text(grid));
  }
  return {x.shape[0], x.shape[1], grid[1], grid[2]};
}

void check_grid_sample_output(const StepView& view) {
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class GridSampleRunner final : public Runner {
 public:
  GridSampleRunner(const StepView& view, kernels::Isa) : x_(view.input()) {
    const auto& own = view.attributes<GridSampleAttributes>();
    shape_ = {.in_h = x_.shape[2],
              .in_w = x_.shape[3],
              .channels = x_.shape[1],
              .pixels = pixels_of(view.output()),
              .mode = own.mode,
              .border = own.border,
              .align_corners = own.align_corners};
  }
  void run(const RunArgs& args) const override {
    kernels::grid_sample(shape_, first_size(x_, args.batch), static_cast<const float*>(args.inputs[0]),
                         static_cast<const float*>(args.inputs[1]), static_cast<float*>(args.output),
                         args.parallel);
  }
  std::string kernel() const override { return enum_name(shape_.mode); }

 private:
  TensorInfo x_;
  kernels::GridShape shape_;
};

StepWork grid_sample_work(const StepView& view, int64_t batch) {
  return picked_work(view, batch, 4, 8);
}

}  // namespace

const OpDef ops::grid_sample = {.min_inputs = 2,
                                .max_inputs = 2,
                                .infer = infer_grid_sample,
                                .check_output = check_grid_sample_output,
                                .work = grid_sample_work,
                                .prepare = make_runner<GridSampleRunner>};

}  // namespace ulp::runtime
