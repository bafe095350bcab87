// MaxUnpool: the largest numbers of windows go back to their places.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Sizes [batch, channels, ...] of the image that a pool of this window has read, as far as results tell it.
Sizes unpooled_sizes(Call& call, const Tensor& x) {
  const Window window = plain_window_of(call, x, call.attribute("kernel_shape", Sizes()));
  Sizes sizes = {x.size(0), x.size(1)};
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const int64_t last = (x.size(static_cast<int64_t>(d) + 2) - 1) * window.strides[d];
    sizes.push_back(last + window.kernel[d] - window.before[d] - window.behind[d]);
  }
  return sizes;
}

void max_unpool(Call& call) {
  const Tensor x = call.x(0), places = call.x(1);
  const Sizes sizes = unpooled_sizes(call, x);
  if (x.sizes() != places.sizes())
    call.refuse("expected a place for each number, got ", places.sizes(), " for ", x.sizes());
  if (call.has(2) && call.ints(2) != sizes)
    call.refuse("expected an output_shape of ", at::IntArrayRef(sizes),
                ", which the windows give: of others, runtimes differ on ", "what the places count, got ",
                at::IntArrayRef(call.ints(2)));
  int64_t each = 1;
  for (size_t d = 1; d < sizes.size(); ++d) each *= sizes[d];
  const Tensor zeros = at::zeros({sizes[0] * each}, x.options());
  const Tensor filled = at::scatter(zeros, 0, at::reshape(places, {-1}), at::reshape(x, {-1}));
  call.set(at::reshape(filled, sizes));
}

double unpooled_bound(Call& call) {
  double all = 1;
  const std::vector<int64_t> x = call.sizes(0), kernel = call.attribute("kernel_shape", Sizes()),
                             strides = call.attribute("strides", Sizes(kernel.size(), 1));
  for (size_t d = 0; d < x.size(); ++d) {
    const bool moved = d >= 2 && d - 2 < kernel.size() && d - 2 < strides.size();
    all *= static_cast<double>(x[d]) * (moved ? std::abs(static_cast<double>(strides[d - 2])) : 1) +
           (moved ? static_cast<double>(kernel[d - 2]) : 0);
  }
  return 2 * all + 2 * first_input(call);
}

}  // namespace

ConverterTable unpool_table() {
  static constexpr Converter kTable[] = {{"MaxUnpool", max_unpool, unpooled_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
