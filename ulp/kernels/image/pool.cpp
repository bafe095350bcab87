#include "ulp/kernels/image/pool.h"

#include "ulp/base/error.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/elementwise/small_ops_table.h"

namespace ulp::kernels {
namespace {

void check_axis(const char* axis, int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  constexpr int64_t kLargest = int64_t{1} << 28;
  const bool sizes = in >= 1 && kernel >= 1 && stride >= 1 && dilation >= 1 && pad >= 0 && in <= kLargest &&
                     kernel <= kLargest && stride <= kLargest && dilation <= kLargest;
  if (!sizes) fail("kernels.check_pool", "expected sizes of at least 1 along ", axis);
  if (pad > kernel / 2) {
    fail("kernels.check_pool", "expected padding of at most half the kernel along ", axis, ", got ", pad,
         " for ", kernel);
  }
  if (dilation * (kernel - 1) + 1 > in + 2 * pad) {
    fail("kernels.check_pool", "expected the kernel to fit into the padded image along ", axis, ", got ",
         dilation * (kernel - 1) + 1, " over ", in + 2 * pad);
  }
}

PoolRowArgs row_args(const PoolShape& s) {
  PoolRowArgs args{};
  args.in_h = s.in_h;
  args.in_w = s.in_w;
  args.channels = s.channels;
  args.out_w = s.out_w();
  args.kernel_h = s.kernel_h;
  args.kernel_w = s.kernel_w;
  args.stride_w = s.stride_w;
  args.dilation_h = s.dilation_h;
  args.dilation_w = s.dilation_w;
  args.left = -s.pad_w;
  args.pad_h = s.pad_h;
  args.pad_w = s.pad_w;
  return args;
}

void each_row(DataType type, const PoolShape& s, PoolRowArgs args, int64_t batch, const void* x, void* y,
              void (*op)(DataType, const PoolRowArgs&), const Parallel& parallel) {
  const int64_t out_h = s.out_h(), image = s.in_h * s.in_w * s.channels, row = args.out_w * s.channels;
  const int64_t bytes = element_bytes(type);
  worth_sharing(batch * image, parallel).run(batch * out_h, [&](int64_t task, int) {
    PoolRowArgs mine = args;
    mine.x = static_cast<const uint8_t*>(x) + task / out_h * image * bytes;
    mine.y = static_cast<uint8_t*>(y) + task * row * bytes;
    mine.top = task % out_h * s.stride_h - s.pad_h;
    op(type, mine);
  });
}

}  // namespace

void check_pool(const PoolShape& s) {
  if (s.channels < 1) fail("kernels.check_pool", "expected at least one channel, got ", s.channels);
  check_axis("height", s.in_h, s.kernel_h, s.stride_h, s.pad_h, s.dilation_h);
  check_axis("width", s.in_w, s.kernel_w, s.stride_w, s.pad_w, s.dilation_w);
}

void max_pool(DataType type, const PoolShape& shape, int64_t batch, const void* x, void* y, Isa isa,
              const Parallel& parallel) {
  check_small_type("kernels.max_pool", type);
  each_row(type, shape, row_args(shape), batch, x, y, small_ops(isa).max_pool_row, parallel);
}

void avg_pool(DataType type, const PoolShape& shape, bool count_include_pad, int64_t batch, const void* x,
              void* y, Affine xq, Affine yq, Isa isa, const Parallel& parallel) {
  check_small_type("kernels.avg_pool", type);
  PoolRowArgs args = row_args(shape);
  args.count_include_pad = count_include_pad;
  if (type == DataType::u8) args.u8 = u8_args(Activation::none, xq, xq, yq);
  each_row(type, shape, args, batch, x, y, small_ops(isa).avg_pool_row, parallel);
}

void avg_pool_u8(const PoolShape& shape, bool count_include_pad, int64_t batch, const uint8_t* x, uint8_t* y,
                 int32_t zero_point, Isa isa, const Parallel& parallel) {
  PoolRowArgs args = row_args(shape);
  args.count_include_pad = count_include_pad;
  args.ties_away = true;
  args.u8.y_zero = zero_point;
  each_row(DataType::u8, shape, args, batch, x, y, small_ops(isa).avg_pool_row, parallel);
}

void global_avg_pool(DataType type, int64_t batch, int64_t pixels, int64_t channels, const void* x, void* y,
                     Affine xq, Affine yq, Isa isa, const Parallel& parallel) {
  PoolShape shape;
  shape.in_w = shape.kernel_w = pixels;
  shape.channels = channels;
  avg_pool(type, shape, false, batch, x, y, xq, yq, isa, parallel);
}

}  // namespace ulp::kernels
