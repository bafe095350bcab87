#include "ulp/kernels/elementwise/typed_rows.h"

#include "ulp/kernels/elementwise/small_ops_table.h"

namespace ulp::kernels {

TypedRows::TypedRows(const char* where, const ElementFormat& format, Isa isa)
    : format_(format), ops_(&small_ops(isa)) {
  check_small_type(where, format.type);
}

const float* TypedRows::read(const void* data, int64_t at, int64_t n, float* row) const {
  if (format_.is_f32()) return static_cast<const float*>(data) + at;
  if (format_.type == DataType::bf16) {
    ops_->bf16_to_f32(static_cast<const uint16_t*>(data) + at, row, n);
  } else {
    ElementwiseArgs args;
    args.a_zero = static_cast<float>(format_.affine.zero_point);
    args.a_multiplier = format_.affine.scale;
    ops_->dequantize(static_cast<const uint8_t*>(data) + at, row, n, args);
  }
  return row;
}

float* TypedRows::target(void* data, int64_t at, float* row) const {
  return format_.is_f32() ? static_cast<float*>(data) + at : row;
}

void TypedRows::write(const float* made, void* data, int64_t at, int64_t n) const {
  if (format_.type == DataType::bf16) ops_->f32_to_bf16(made, static_cast<uint16_t*>(data) + at, n);
  if (format_.type != DataType::u8) return;
  ElementwiseArgs args = u8_args(Activation::none, format_.affine, format_.affine, format_.affine);
  args.a_multiplier = 1.0F / format_.affine.scale;
  ops_->quantize(made, static_cast<uint8_t*>(data) + at, n, args);
}

}  // namespace ulp::kernels
