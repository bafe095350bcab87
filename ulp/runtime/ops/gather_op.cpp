// Elements and rows of x that ids pick along a dimension. The ids are a tensor, or a constant that all items
// share.
#include "ulp/runtime/ops/gather_op.h"

#include "ulp/kernels/index/gather.h"
#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

kernels::IdRange gather_id_range(const StepView& view) {
  const auto& own = view.attributes<GatherAttributes>();
  return {view.input().shape[static_cast<size_t>(own.dim)], own.from_end};
}

/// Sizes of an item's ids.
std::vector<int64_t> item_of(const StepView& view) {
  if (const Constant* ids = view.constant("ids")) {
    if (view.input_count() == 2) view.fail("expected ids as an input or as a constant, got both");
    view.expect_ids_between("ids", gather_id_range(view).low(), gather_id_range(view).size);
    return ids->shape;
  }
  if (view.input_count() < 2) view.fail("expected ids, got none");
  view.expect_ids(1);
  const std::vector<int64_t>& shape = view.input(1).shape;
  if (shape[0] != view.input().shape[0]) {
    view.fail("expected ids of the first size of the input, got ", shape_text(shape), " for ",
              shape_text(view.input().shape));
  }
  return {shape.begin() + 1, shape.end()};
}

std::vector<int64_t> infer_gather(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& [dim, each, from_end] = view.attributes<GatherAttributes>();
  const size_t d = view.expect_plain_dimension(dim);
  const std::vector<int64_t> item = item_of(view);
  std::vector<int64_t> shape = x.shape;
  if (each) {
    shape.assign(1, x.shape[0]);
    shape.insert(shape.end(), item.begin(), item.end());
    bool fits = shape.size() == x.shape.size();
    for (size_t i = 1; fits && i < shape.size(); ++i) fits = i == d || shape[i] <= x.shape[i];
    if (!fits) {
      view.fail("expected ids no larger than the input ", shape_text(x.shape), " but for dimension ", d,
                ", got ", shape_text(shape));
    }
  } else {
    const auto at = shape.erase(shape.begin() + dim);
    shape.insert(at, item.begin(), item.end());
  }
  if (checked_elements(shape) < 0) view.fail("the result is too large");
  return shape;
}

void check_gather_output(const StepView& view) {
  view.expect_copied(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

std::optional<IdUse> gather_ids(const StepView& view) {
  if (view.constant("ids") != nullptr) return std::nullopt;
  return IdUse{1, gather_id_range(view).low(), gather_id_range(view).size};
}

/// Elements from one index of each dimension behind the first to the next.
std::vector<int64_t> steps_of(std::span<const int64_t> shape) {
  std::vector<int64_t> steps(shape.size(), 1);
  for (size_t d = shape.size() - 1; d-- > 0;) steps[d] = steps[d + 1] * shape[d + 1];
  return steps;
}

std::vector<kernels::GatherDimension> gather_dimensions(const StepView& view) {
  const std::vector<int64_t>&from = view.input().shape, &to = view.output().shape;
  const std::vector<int64_t> from_steps = steps_of(from), to_steps = steps_of(to);
  const auto dim = static_cast<size_t>(view.attributes<GatherAttributes>().dim);
  std::vector<kernels::GatherDimension> dimensions;
  if (view.attributes<GatherAttributes>().each) {
    for (size_t d = 1; d < to.size(); ++d)
      dimensions.push_back({to[d], d == dim ? 0 : from_steps[d], to_steps[d]});
    return dimensions;
  }
  const std::vector<int64_t> ids = item_of(view);
  int64_t count = 1;
  for (const int64_t size : ids) count *= size;
  for (size_t d = 1; d < dim; ++d) dimensions.push_back({from[d], from_steps[d], 0});
  dimensions.push_back({count, 0, 1});
  for (size_t d = dim + 1; d < from.size(); ++d) dimensions.push_back({from[d], from_steps[d], 0});
  return dimensions;
}

class GatherRunner final : public Runner {
 public:
  GatherRunner(const StepView& view, kernels::Isa)
      : x_(view.input()), range_(gather_id_range(view)), kernel_(source_of(view), gather_dimensions(view)) {
    if (const Constant* ids = view.constant("ids")) {
      constant_ = ids->bytes;
    } else {
      ids_ = view.input(1);
    }
  }
  void run(const RunArgs& args) const override {
    const bool fixed = args.inputs.size() == 1;
    const void* ids = fixed ? constant_.data() : args.inputs[1];
    kernels::FirstBadId bad;
    kernel_.run(args.inputs[0], ids, args.output, first_size(x_, args.batch), args.parallel, bad);
    if (!fixed) report_bad_id(args, bad, ids_, ids, range_);
  }
  std::string kernel() const override { return kernel_.kernel(); }

 private:
  static kernels::GatherSource source_of(const StepView& view) {
    const TensorInfo& x = view.input();
    const Constant* fixed = view.constant("ids");
    const auto dim = static_cast<size_t>(view.attributes<GatherAttributes>().dim);
    return {.element_size = element_bytes(x.type),
            .item = item_elements(x),
            .row = steps_of(x.shape)[dim],
            .id_type = fixed ? fixed->type : view.input(1).type,
            .item_ids = fixed ? 0 : item_elements(view.input(1)),
            .range = gather_id_range(view)};
  }

  TensorInfo x_, ids_;
  kernels::IdRange range_;
  kernels::Gather kernel_;
  SharedBytes constant_;
};

}  // namespace

const OpDef ops::gather = {.max_inputs = 2,
                           .roles = {"ids"},
                           .infer = infer_gather,
                           .check_output = check_gather_output,
                           .ids = gather_ids,
                           .work = copied_work,
                           .prepare = make_runner<GatherRunner>};

}  // namespace ulp::runtime
