// Rows of the batch: the same bytes, where other dimensions count as that of the batch.
#include "ulp/runtime/ops/regroup_op.h"

#include <cstring>

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

/// The rows of an item, and how many of them stand before the batch.
struct RegroupedRows {
  int64_t times = 1, outer = 1;
};

bool takes_rows_apart(const StepView& view) {
  const auto& own = view.attributes<RegroupAttributes>();
  return own.joined == 0 && own.kept == 0 && batch_dimension(view.input()) == 0;
}

RegroupedRows rows_made(const StepView& view) {
  const TensorInfo& x = view.input();
  if (takes_rows_apart(view)) return {};
  const size_t batch = *batch_dimension(x);
  RegroupedRows rows;
  for (auto d = static_cast<size_t>(view.attributes<RegroupAttributes>().kept); d < batch; ++d)
    rows.outer *= x.shape[d];
  rows.times = rows.outer;
  for (size_t d = batch + 1; d <= batch + static_cast<size_t>(view.attributes<RegroupAttributes>().joined);
       ++d)
    rows.times *= x.shape[d];
  return rows;
}

std::vector<int64_t> infer_regroup(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto joined = static_cast<size_t>(view.attributes<RegroupAttributes>().joined);
  const std::optional<size_t> batch = batch_dimension(x);
  if (!batch || x.outer != 1) view.fail("expected an input with a batch, and no rows before it");
  if (takes_rows_apart(view)) return {kBatch, element_count(x, 1)};
  const auto kept = static_cast<size_t>(view.attributes<RegroupAttributes>().kept);
  if (x.layout != Layout::plain || x.times != 1 || *batch + joined >= x.shape.size() || kept > *batch)
    view.fail("expected an input of layout plain with ", kept, " dimensions before the batch and ", joined,
              " behind it, got ", shape_text(x), " ", to_string(x.layout));
  std::vector<int64_t> shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(kept));
  shape.push_back(kBatch);
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(*batch + joined) + 1,
               x.shape.end());
  return shape;
}

void check_regroup_output(const StepView& view) {
  view.expect_copied(view.input());
  view.expect_same_numbers(view.input());
  if (view.output().layout != Layout::plain) view.fail("expected an output of layout plain");
  const RegroupedRows rows = rows_made(view);
  if (view.output().times == rows.times && view.output().outer == rows.outer) return;
  view.fail("expected ", rows.times, " rows for each item, ", rows.outer, " of them before the batch, got ",
            view.output().times, " and ", view.output().outer);
}

/// The bytes are the same for the whole batch.
Sharing regroup_sharing(const StepView&) {
  return Sharing::alias;
}

bool regroup_keeps_whole(const StepView& view) {
  return batch_dimension(view.input()) != 0;
}

class RegroupRunner final : public Runner {
 public:
  RegroupRunner(const StepView& view, kernels::Isa) : item_bytes_(byte_count(view.input(), 1)) {}
  void run(const RunArgs& args) const override {
    std::memcpy(args.output, args.inputs[0], item_bytes_ * static_cast<size_t>(args.batch));
  }
  std::string kernel() const override { return "copy"; }

 private:
  size_t item_bytes_;
};

}  // namespace

const OpDef ops::regroup = {.infer = infer_regroup,
                            .check_output = check_regroup_output,
                            .sharing = regroup_sharing,
                            .keeps_batch_whole = regroup_keeps_whole,
                            .work = copied_work,
                            .prepare = make_runner<RegroupRunner>};

}  // namespace ulp::runtime
