#include "ulp/runtime/ops/conv_runner.h"

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

/// Extent of the output along one axis; fails unless the window fits the padded input.
int64_t conv_extent(const StepView& view, int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                    int64_t dilation) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  const int64_t padded = in + 2 * pad;
  if (reach > padded) view.fail("expected a window that fits the padded input ", padded, ", got ", reach);
  return (padded - reach) / stride + 1;
}

}  // namespace

std::vector<int64_t> convolved(const StepView& view, const Window& w, int64_t channels) {
  const TensorInfo& x = view.input();
  const int64_t padded[] = {x.shape[1], rows_of(x) + 2 * w.pad_h, columns_of(x) + 2 * w.pad_w};
  if (checked_elements(padded) < 0) view.fail("the padded input is too large");
  std::vector<int64_t> shape =
      resized(x.shape, conv_extent(view, rows_of(x), w.kernel_h, w.stride_h, w.pad_h, w.dilation_h),
              conv_extent(view, columns_of(x), w.kernel_w, w.stride_w, w.pad_w, w.dilation_w));
  shape[1] = channels;
  return shape;
}

PackRules rules_of(const StepView& view) {
  return view.packs() == nullptr ? PackRules{} : view.packs()->rules();
}

ItemRange usual_items(const StepView& view, int64_t per_item) {
  constexpr int64_t kUsualBatch = 16;
  const TensorInfo& x = view.input();
  const bool batched = x.shape[0] == kBatch;
  const int64_t rows = batched ? per_item : x.shape[0] * per_item;
  return {rules_of(view).sizes_vary ? 1 : rows, batched ? kUsualBatch * rows : rows};
}

}  // namespace ulp::runtime
