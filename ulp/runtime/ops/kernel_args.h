// Words of a plan in the words of the kernels.
#pragma once

#include <cstring>
#include <vector>

#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

inline kernels::Affine affine_of(const TensorInfo& tensor) {
  return {tensor.scale, tensor.zero_point};
}

/// How a tensor holds its numbers.
inline kernels::ElementFormat format_of(const TensorInfo& tensor) {
  return {tensor.type, affine_of(tensor)};
}

/// The window fields that convolution and pooling shapes have in common.
template <typename Shape>
void set_window(Shape& shape, const Window& w) {
  shape.kernel_h = w.kernel_h;
  shape.kernel_w = w.kernel_w;
  shape.stride_h = w.stride_h;
  shape.stride_w = w.stride_w;
  shape.pad_h = w.pad_h;
  shape.pad_w = w.pad_w;
  shape.dilation_h = w.dilation_h;
  shape.dilation_w = w.dilation_w;
}

/// Size of the first dimension in a run.
inline int64_t first_size(const TensorInfo& tensor, int64_t batch) {
  return tensor.shape[0] == kBatch ? batch : tensor.shape[0];
}

/// Elements below the first dimension.
inline int64_t item_elements(const TensorInfo& tensor) {
  return element_count(tensor, 1) / first_size(tensor, 1);
}

/// Elements of one channel of an image or a volume.
inline int64_t pixels_of(const TensorInfo& x) {
  int64_t pixels = 1;
  for (size_t d = 2; d < x.shape.size(); ++d) pixels *= x.shape[d];
  return pixels;
}

/// Images in an item: the slices of a volume.
inline int64_t slices_of(const TensorInfo& x) {
  return x.shape.size() == 5 ? x.shape[2] : 1;
}

/// Rows and columns of an image, or of a slice of a volume.
inline int64_t rows_of(const TensorInfo& x) {
  return x.shape[x.shape.size() - 2];
}
inline int64_t columns_of(const TensorInfo& x) {
  return x.shape.back();
}

/// The same images with other rows and columns.
inline std::vector<int64_t> resized(std::vector<int64_t> shape, int64_t rows, int64_t columns) {
  shape[shape.size() - 2] = rows;
  shape.back() = columns;
  return shape;
}

/// A copy of an f32 constant, for a runner to keep.
inline std::vector<float> floats_of(const Constant& constant) {
  std::vector<float> values(constant.bytes.size() / sizeof(float));
  std::memcpy(values.data(), constant.bytes.data(), constant.bytes.size());
  return values;
}

/// NCHW and NHWC are the same bytes without channels to move: one channel or one pixel.
inline bool same_order(const TensorInfo& x, Layout layout) {
  return x.layout == layout || x.shape[1] == 1 || pixels_of(x) == 1;
}

}  // namespace ulp::runtime
