// A tensor in which ids say where a number, or another tensor's elements, stand along a dimension.
#include "ulp/runtime/ops/scatter_op.h"

#include <algorithm>

#include "ulp/runtime/ops/ids.h"

namespace ulp::runtime {
namespace {

kernels::IdRange scatter_id_range(const StepView& view) {
  return {view.input().shape[static_cast<size_t>(view.attributes<ScatterAttributes>().dim)], false};
}

std::vector<int64_t> infer_scatter(const StepView& view) {
  const TensorInfo& x = view.input();
  const size_t dim = view.expect_plain_dimension(view.attributes<ScatterAttributes>().dim);
  view.expect_ids(1);
  const std::vector<int64_t>& ids = view.input(1).shape;
  bool fits = ids.size() == x.shape.size() && ids[0] == x.shape[0];
  for (size_t d = 1; fits && d < ids.size(); ++d) fits = d == dim || ids[d] <= x.shape[d];
  if (!fits) {
    view.fail("expected ids no larger than the input ", shape_text(x.shape), " but for dimension ", dim,
              ", got ", shape_text(ids));
  }
  if (view.input_count() == 3 && view.input(2).shape != ids) {
    view.fail("expected a source of the shape of the ids, ", shape_text(ids), ", got ",
              shape_text(view.input(2).shape));
  }
  return x.shape;
}

void check_scatter_output(const StepView& view) {
  const TensorInfo& y = view.output();
  view.expect_activation_type(y);
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
  const auto& own = view.attributes<ScatterAttributes>();
  if (own.mode != kernels::ScatterMode::replace || own.integers)
    view.expect_type("to join elements", y.type, DataType::f32);
  if (view.input_count() < 3) {
    if (y.type == DataType::u8) view.fail("expected a source for codes, got a number");
    return;
  }
  view.expect_same_numbers(view.input(2));
  view.expect_same_layout(view.input(2));
  if (own.value != 0) view.fail("expected a source or a value, got both");
}

/// Its first input's memory, where no other input could be taken for it.
Sharing scatter_sharing(const StepView& view) {
  const size_t bytes = byte_count(view.output(), 1);
  for (size_t i = 1; i < view.input_count(); ++i) {
    if (byte_count(view.input(i), 1) == bytes) return Sharing::none;
  }
  return Sharing::in_place;
}

class ScatterRunner final : public Runner {
 public:
  ScatterRunner(const StepView& view, kernels::Isa)
      : x_(view.input()),
        ids_(view.input(1)),
        range_(scatter_id_range(view)),
        value_(view.attributes<ScatterAttributes>().value),
        integers_(view.attributes<ScatterAttributes>().integers),
        kernel_(target_of(view), dimensions_of(view),
                static_cast<size_t>(view.attributes<ScatterAttributes>().dim) - 1) {}
  void run(const RunArgs& args) const override {
    kernels::FirstBadId bad, inexact;
    const void* source = args.inputs.size() == 3 ? args.inputs[2] : nullptr;
    kernel_.run(args.inputs[0], args.inputs[1], source, value_, args.output, first_size(x_, args.batch),
                args.parallel, bad, integers_ ? &inexact : nullptr);
    report_bad_id(args, bad, ids_, args.inputs[1], range_);
    if (inexact.any())
      report_inexact(args, x_, inexact.element(), static_cast<const float*>(args.output)[inexact.element()]);
  }
  std::string kernel() const override { return "scatter"; }

 private:
  static int64_t step_of(const TensorInfo& x, size_t dim) {
    int64_t step = 1;
    for (size_t d = dim + 1; d < x.shape.size(); ++d) step *= x.shape[d];
    return step;
  }
  static kernels::ScatterTarget target_of(const StepView& view) {
    const TensorInfo& x = view.input();
    const auto& own = view.attributes<ScatterAttributes>();
    return {.type = x.type,
            .mode = own.mode,
            .item = item_elements(x),
            .row = step_of(x, static_cast<size_t>(own.dim)),
            .id_type = view.input(1).type,
            .range = scatter_id_range(view)};
  }
  static std::vector<kernels::ScatterDimension> dimensions_of(const StepView& view) {
    const auto dim = static_cast<size_t>(view.attributes<ScatterAttributes>().dim);
    std::vector<kernels::ScatterDimension> dimensions;
    for (size_t d = 1; d < view.input(1).shape.size(); ++d) {
      dimensions.push_back({view.input(1).shape[d], d == dim ? 0 : step_of(view.input(), d)});
    }
    return dimensions;
  }

  TensorInfo x_, ids_;
  kernels::IdRange range_;
  float value_;
  bool integers_;
  kernels::Scatter kernel_;
};

std::optional<IdUse> scatter_ids(const StepView& view) {
  return IdUse{1, 0, scatter_id_range(view).size};
}

}  // namespace

const OpDef ops::scatter = {.min_inputs = 2,
                            .max_inputs = 3,
                            .infer = infer_scatter,
                            .check_output = check_scatter_output,
                            .sharing = scatter_sharing,
                            .ids = scatter_ids,
                            .prepare = make_runner<ScatterRunner>};

}  // namespace ulp::runtime
