// Rows of f32, bf16 or codes at the edges of kernels that compute in f32: a row is widened into a buffer that stays in
// cache, and what comes out of it is rounded on its way to memory.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// The elements of a buffer: f32, bf16, or u8 codes of a quantizer.
struct ElementFormat {
  DataType type = DataType::f32;
  Affine affine = {};  ///< of u8

  bool is_f32() const { return type == DataType::f32; }
};

struct SmallOps;

/// Reads and writes the elements of buffers of one format. The same bits on every instruction set.
class ULP_API TypedRows {
 public:
  /// Throws ulp::Error for other types; `where` is the caller.
  TypedRows(const char* where, const ElementFormat& format, Isa isa);

  /// Elements [at, at + n) as floats: those of the buffer itself where it holds f32, else written to `row`.
  const float* read(const void* data, int64_t at, int64_t n, float* row) const;
  /// Where n floats for [at, at + n) are to be made: in the buffer itself where it holds f32, else in `row`.
  float* target(void* data, int64_t at, float* row) const;
  /// Rounds what was made in target(), half to even; codes are clamped to [0, 255].
  void write(const float* made, void* data, int64_t at, int64_t n) const;

 private:
  ElementFormat format_;
  const SmallOps* ops_;
};

}  // namespace ulp::kernels
