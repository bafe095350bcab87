// ulp::depth_to_space: how a transposed convolution ends that is computed as an ordinary one.
#include <torch/library.h>

#include "ulp/base/error.h"

namespace ulp::graph {
namespace {

at::Tensor depth_to_space(const at::Tensor& x, int64_t h, int64_t w, int64_t crop_h, int64_t crop_w) {
  const bool whole = x.dim() == 4 && h > 0 && w > 0 && x.size(1) % (h * w) == 0;
  if (!whole || crop_h < 0 || crop_h >= h || crop_w < 0 || crop_w >= w) {
    fail("graph.depth_to_space", "expected images whose channels divide by ", h, " x ", w,
         " and crops below that, got ", x.sizes(), ", ", crop_h, " and ", crop_w);
  }
  const int64_t rows = x.size(2) * h, columns = x.size(3) * w;
  return x.reshape({x.size(0), h, w, x.size(1) / (h * w), x.size(2), x.size(3)})
      .permute({0, 3, 4, 1, 5, 2})
      .reshape({x.size(0), -1, rows, columns})
      .narrow(2, 0, rows - crop_h)
      .narrow(3, 0, columns - crop_w)
      .contiguous();
}

}  // namespace

// Part i * w + j of the channels becomes the pixels (y * h + i, x * w + j); the last crop_h rows and crop_w
// columns are left out.
TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("depth_to_space(Tensor x, int h, int w, int crop_h, int crop_w) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("depth_to_space", depth_to_space);
}

}  // namespace ulp::graph
