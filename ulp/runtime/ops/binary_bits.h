// Tensors of signs: u8 with eight channels a byte (kernels/binary/pack_signs.h).
#pragma once

#include "ulp/kernels/binary/pack_signs.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// Fails unless a tensor can hold bits: u8 of scale 1 and zero point 0, since its bytes are no codes.
inline void expect_bits(const StepView& view, const char* what, const TensorInfo& tensor) {
  view.expect_type(what, tensor.type, DataType::u8);
  if (tensor.scale != 1.0F || tensor.zero_point != 0) {
    view.fail("expected bits of scale 1 and zero point 0, got ", tensor.scale, " and ", tensor.zero_point);
  }
}

/// The dimension of signs: 1 of images and volumes, else the last one of two or more.
inline size_t sign_axis(const StepView& view, const TensorInfo& tensor) {
  if (tensor.layout == Layout::nhwc) return 1;
  if (tensor.shape.size() < 2) {
    view.fail("expected an input of at least 2 dimensions, got ", shape_text(tensor.shape));
  }
  return tensor.shape.size() - 1;
}

/// Fails where there is a constant `flip` that does not fit so many channels.
inline void expect_flip(const StepView& view, int64_t channels) {
  const int64_t bytes[] = {kernels::bit_bytes(channels)};
  if (view.constant("flip") != nullptr) view.expect_constant("flip", DataType::u8, bytes);
}

}  // namespace ulp::runtime
