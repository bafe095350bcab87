// Reductions over any dimensions but the batch, and sums along one.
#include "ulp/runtime/ops/reduce_op.h"

#include <algorithm>

#include "ulp/runtime/engine/arena.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

using kernels::ReduceKind;

/// Which dimensions are reduced, in logical order.
std::vector<bool> reduced_of(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<ReduceAttributes>();
  std::vector<bool> reduced(x.shape.size(), false);
  for (const ReducedDim& one : attributes.dims) {
    const auto d = static_cast<size_t>(one.dim);
    if (d >= reduced.size() || reduced[d]) {
      view.fail("expected different dimensions below ", reduced.size(), ", got ", d);
    }
    reduced[d] = true;
  }
  return reduced;
}

std::vector<int64_t> infer_reduce(const StepView& view) {
  const TensorInfo& x = view.input();
  view.expect_activation_type(x);
  const auto& attributes = view.attributes<ReduceAttributes>();
  const std::vector<bool> reduced = reduced_of(view);
  if (attributes.dims.empty()) view.fail("expected dimensions to reduce, got none");
  const bool place = attributes.kind == ReduceKind::argmax || attributes.kind == ReduceKind::argmin;
  constexpr int64_t kExactInFloat = 1 << 24;
  if (place &&
      (attributes.dims.size() != 1 || x.shape[static_cast<size_t>(attributes.dims[0].dim)] > kExactInFloat)) {
    view.fail("expected one dimension of at most ", kExactInFloat, " elements");
  }
  std::vector<int64_t> shape;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (!reduced[d]) {
      shape.push_back(x.shape[d]);
    } else if (attributes.keepdim) {
      shape.push_back(1);
    }
  }
  return shape;
}

void check_reduce_output(const StepView& view) {
  view.expect_activation_type(view.output());
  const ReduceKind kind = view.attributes<ReduceAttributes>().kind;
  if (kind == ReduceKind::argmax || kind == ReduceKind::argmin) {
    view.expect_type("an output", view.output().type, DataType::f32);
  }
  const bool image =
      view.input().layout == Layout::nhwc && view.output().shape.size() == view.input().shape.size();
  const Layout expected = image ? Layout::nhwc : Layout::plain;
  if (view.output().layout != expected) {
    view.fail("expected an output of layout ", to_string(expected), ", got ",
              to_string(view.output().layout));
  }
  // What stays of an image lies in memory as it did, and that is plain order for one or two dimensions only.
  const std::vector<bool> reduced = reduced_of(view);
  const bool pixels = std::all_of(reduced.begin() + std::min<int64_t>(2, std::ssize(reduced)), reduced.end(),
                                  [](bool one) { return one; });
  if (view.input().layout == Layout::nhwc && !image && !reduced[1] && !pixels) {
    view.fail("expected an input of layout plain where channels stay beside rows or columns");
  }
}

std::vector<kernels::ReduceDimension> reduce_dimensions(const StepView& view) {
  const std::vector<bool> reduced = reduced_of(view);
  std::vector<kernels::ReduceDimension> dimensions;
  for (size_t d = 1; d < reduced.size(); ++d) dimensions.push_back({view.input().shape[d], reduced[d]});
  if (view.input().layout == Layout::nhwc)
    std::rotate(dimensions.begin(), dimensions.begin() + 1, dimensions.end());
  return dimensions;
}

class ReduceRunner final : public Runner {
 public:
  ReduceRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()),
        result_(view.output()),
        isa_(isa),
        reduce_(view.attributes<ReduceAttributes>().kind, info_.type, affine_of(info_),
                reduce_dimensions(view), view.attributes<ReduceAttributes>().correction, isa) {}
  size_t workspace_bytes(int64_t batch, int workers) const override {
    return reduce_.workspace_bytes(workers) + result_bytes(batch);
  }
  /// What is no f32 is rounded from the results in f32, which come first in the workspace.
  void run(const RunArgs& args) const override {
    const size_t own = result_bytes(args.batch);
    void* made = own == 0 ? args.output : args.workspace;
    reduce_.run(args.inputs[0], static_cast<float*>(made), first_size(info_, args.batch),
                static_cast<std::byte*>(args.workspace) + own, args.parallel);
    kernels::TypedRows("runtime.reduce", format_of(result_), isa_)
        .write(static_cast<float*>(made), args.output, 0, element_count(result_, args.batch));
  }
  std::string kernel() const override { return std::string("reduce_") + kernels::to_string(isa_); }

 private:
  size_t result_bytes(int64_t batch) const {
    if (result_.type == DataType::f32) return 0;
    return align_up(static_cast<size_t>(element_count(result_, batch)) * sizeof(float));
  }

  TensorInfo info_, result_;
  kernels::Isa isa_;
  kernels::Reduce reduce_;
};

std::vector<int64_t> infer_cumsum(const StepView& view) {
  view.expect_plain_f32(0, 2);
  const int64_t dim = view.attributes<CumulativeAttributes>().dim;
  if (dim >= static_cast<int64_t>(view.input().shape.size())) {
    view.fail("expected a dimension of ", shape_text(view.input().shape), ", got ", dim);
  }
  return view.input().shape;
}

void check_cumsum(const StepView& view) {
  view.expect_plain_f32_output();
}

class CumsumRunner final : public Runner {
 public:
  CumsumRunner(const StepView& view, kernels::Isa) : info_(view.input()) {
    const auto dim = static_cast<size_t>(view.attributes<CumulativeAttributes>().dim);
    product_ = view.attributes<CumulativeAttributes>().product;
    for (size_t d = 1; d < info_.shape.size(); ++d) {
      (d < dim ? outer_ : d == dim ? size_ : inner_) *= info_.shape[d];
    }
  }
  void run(const RunArgs& args) const override {
    const auto run = product_ ? kernels::cumulative_product : kernels::cumulative_sum;
    run(static_cast<const float*>(args.inputs[0]), static_cast<float*>(args.output),
        first_size(info_, args.batch) * outer_, size_, inner_, args.parallel);
  }
  std::string kernel() const override { return product_ ? "cumprod" : "cumsum"; }

 private:
  TensorInfo info_;
  int64_t outer_ = 1, size_ = 1, inner_ = 1;
  bool product_ = false;
};

StepWork reduce_work(const StepView& view, int64_t batch) {
  return reduced_work(view, batch, 1);
}

}  // namespace

const OpDef ops::reduce = {.infer = infer_reduce,
                           .check_output = check_reduce_output,
                           .work = reduce_work,
                           .prepare = make_runner<ReduceRunner>};
const OpDef ops::cumsum = {.infer = infer_cumsum,
                           .check_output = check_cumsum,
                           .sharing = share_in_place,
                           .prepare = make_runner<CumsumRunner>};

}  // namespace ulp::runtime
