#include "ulp/kernels/conv/conv_tasks.h"

#include <algorithm>

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {

ConvTasks::ConvTasks(const ConvShape& shape, const Staging& staging, int64_t tile, int64_t grain)
    : shape_(shape), flat_(is_flat(shape)), staging_(staging), grain_(flat_ ? grain : 1) {
  if (flat_) {
    // Each block of pixels reads all weights, from further away than the second level.
    const int64_t bytes = std::max(kStageBytes, second_level_cache() / 2);
    cache_rows_ = std::max<int64_t>(1, bytes / (staging_.pixel_bytes() * tile)) * tile;
  } else {
    const int64_t one = std::min(shape.stride_h, shape.in_h) * staging_.row_bytes();
    cache_rows_ = std::clamp<int64_t>(kStageBytes / one, 1, shape.out_h());
  }
}

int64_t ConvTasks::stage_bytes() const {
  return flat_ ? staging_.bytes_for_pixels(cache_rows_) : staging_.bytes_for_rows(cache_rows_);
}

WorkSplit ConvTasks::split(int64_t batch, int64_t panels, int64_t weight_bytes, double speed,
                           int workers) const {
  const int64_t pixels = batch * shape_.out_h() * shape_.out_w();
  const int64_t depth = shape_.in_channels / shape_.groups * shape_.kernel_h * shape_.kernel_w;
  const double macs = static_cast<double>(pixels) * static_cast<double>(depth * shape_.out_channels);
  const int64_t input = batch * shape_.in_h * shape_.in_w * staging_.pixel_bytes();
  const Work work{.images = flat_ ? 1 : batch,
                  .rows = flat_ ? pixels : shape_.out_h(),
                  .cache_rows = cache_rows_,
                  .grain = grain_,
                  .pairs = shape_.groups == 1 ? ceil_div(panels, 2) : 1,
                  .macs = macs / speed,
                  .weight_bytes = weight_bytes,
                  .input_bytes = input};
  return split_work(work, workers);
}

PixelRows ConvTasks::stage(const void* x, const WorkSplit::Task& task, uint8_t* buffer) const {
  const int64_t count = task.end - task.first, out_w = shape_.out_w();
  if (flat_) return {staging_.pixels(x, task.first, task.end, buffer), 0, task.first, 1, count};
  return {staging_.rows(x, task.image, task.first, task.end, buffer), shape_.stride_h * staging_.row_bytes(),
          (task.image * shape_.out_h() + task.first) * out_w, count, out_w};
}

}  // namespace ulp::kernels
