// Lines along a dimension in order, all of each or the first few: the elements, or where they were.
#include "ulp/runtime/ops/sort_op.h"

#include "ulp/kernels/index/sort.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_sort(const StepView& view) {
  const auto& own = view.attributes<SortAttributes>();
  view.expect_activation_type(view.input());
  const size_t dim = view.expect_plain_dimension(own.dim);
  std::vector<int64_t> shape = view.input().shape;
  if (own.kept > shape[dim]) view.fail("expected to keep at most ", shape[dim], " elements, got ", own.kept);
  if (own.kept > 0) shape[dim] = own.kept;
  return shape;
}

void check_sort_output(const StepView& view) {
  view.expect_same_layout(view.input());
  if (view.attributes<SortAttributes>().places) {
    view.expect_type("places", view.output().type, DataType::i64);
  } else {
    view.expect_same_numbers(view.input());
  }
}

class SortRunner final : public Runner {
 public:
  SortRunner(const StepView& view, kernels::Isa) : x_(view.input()), kernel_(shape_of(view)) {
    for (size_t d = 1; d < static_cast<size_t>(view.attributes<SortAttributes>().dim); ++d) {
      outer_ *= x_.shape[d];
    }
  }
  size_t workspace_bytes(int64_t, int workers) const override { return kernel_.workspace_bytes(workers); }
  void run(const RunArgs& args) const override {
    kernel_.run(args.inputs[0], args.output, first_size(x_, args.batch) * outer_, args.workspace,
                args.parallel);
  }
  std::string kernel() const override { return "sort"; }

 private:
  static kernels::SortShape shape_of(const StepView& view) {
    const auto& own = view.attributes<SortAttributes>();
    const TensorInfo& x = view.input();
    const auto dim = static_cast<size_t>(own.dim);
    kernels::SortShape shape{.type = x.type,
                             .size = x.shape[dim],
                             .kept = own.kept > 0 ? own.kept : x.shape[dim],
                             .descending = own.descending,
                             .places = own.places};
    for (size_t d = dim + 1; d < x.shape.size(); ++d) shape.inner *= x.shape[d];
    return shape;
  }

  TensorInfo x_;
  kernels::Sort kernel_;
  int64_t outer_ = 1;
};

}  // namespace

const OpDef ops::sort = {
    .infer = infer_sort, .check_output = check_sort_output, .prepare = make_runner<SortRunner>};

}  // namespace ulp::runtime
