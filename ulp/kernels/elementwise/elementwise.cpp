#include "ulp/kernels/elementwise/elementwise.h"

#include <algorithm>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"
#include "ulp/kernels/elementwise/small_ops.h"
#include "ulp/kernels/elementwise/small_ops_table.h"
#include "ulp/kernels/elementwise/split.h"

namespace ulp::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const uint8_t* at(const void* p, Element type, int64_t i) {
  return static_cast<const uint8_t*>(p) + i * element_bytes(type);
}
uint8_t* at(void* p, Element type, int64_t i) {
  return static_cast<uint8_t*>(p) + i * element_bytes(type);
}

void check_type(const char* where, Element type) {
  if (type != Element::f32 && type != Element::bf16 && type != Element::u8) {
    fail(where, "expected f32, bf16 or u8 elements");
  }
}

}  // namespace

const SmallOps& small_ops(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return kSmallOpsPortable;
    case Isa::avx2:
      return kSmallOpsAvx2;
    default:
      return kSmallOpsAvx512;
  }
}

ElementwiseArgs u8_args(Activation activation, Affine a, Affine b, Affine y) {
  ElementwiseArgs args;
  args.a_zero = static_cast<float>(a.zero_point);
  args.b_zero = static_cast<float>(b.zero_point);
  args.a_multiplier = a.scale / y.scale;
  args.b_multiplier = b.scale / y.scale;
  args.lo = activation == Activation::none ? static_cast<float>(-y.zero_point) : 0.0F;
  args.hi = static_cast<float>(255 - y.zero_point);
  if (activation == Activation::relu6) args.hi = std::min(args.hi, 6.0F / y.scale);
  args.y_zero = y.zero_point;
  return args;
}

ElementwiseArgs float_args(Activation activation) {
  ElementwiseArgs args;
  args.lo = activation == Activation::none ? -kInfinity : 0.0F;
  args.hi = activation == Activation::relu6 ? 6.0F : kInfinity;
  return args;
}

void activate(Element type, Activation activation, const void* x, void* y, int64_t n, Affine q, Isa isa,
              const Parallel& parallel) {
  check_type("kernels.activate", type);
  if (is_curve(activation)) {
    if (type != Element::f32) fail("kernels.activate", "expected f32 elements for gelu and tanh");
    split(n, parallel, [&](int64_t begin, int64_t count) {
      row_ops(isa).curve(activation, static_cast<const float*>(x) + begin, static_cast<float*>(y) + begin,
                         count);
    });
    return;
  }
  ElementwiseArgs args = float_args(activation);
  if (type == Element::u8) {
    // Whole codes: the clamp compares bytes.
    args.lo = activation == Activation::none ? 0.0F : static_cast<float>(q.zero_point);
    args.hi = 255.0F;
    if (activation == Activation::relu6) {
      const float six = std::min(6.0F / q.scale, 255.0F);
      args.hi = std::min(255.0F, __builtin_nearbyintf(six) + static_cast<float>(q.zero_point));
    }
  }
  split(n, parallel, [&](int64_t begin, int64_t count) {
    small_ops(isa).clamp(type, at(x, type, begin), at(y, type, begin), count, args);
  });
}

void add(Element type, Activation activation, const void* a, const void* b, void* y, int64_t n, Affine aq,
         Affine bq, Affine yq, Isa isa, const Parallel& parallel) {
  check_type("kernels.add", type);
  const ElementwiseArgs args = type == Element::u8 ? u8_args(activation, aq, bq, yq) : float_args(activation);
  split(n, parallel, [&](int64_t begin, int64_t count) {
    small_ops(isa).add(type, at(a, type, begin), at(b, type, begin), at(y, type, begin), count, args);
  });
}

void quantize(const float* x, uint8_t* y, int64_t n, Affine q, Isa isa, const Parallel& parallel) {
  ElementwiseArgs args = u8_args(Activation::none, q, q, q);
  args.a_multiplier = 1.0F / q.scale;
  split(n, parallel,
        [&](int64_t begin, int64_t count) { small_ops(isa).quantize(x + begin, y + begin, count, args); });
}

void dequantize(const uint8_t* x, float* y, int64_t n, Affine q, Isa isa, const Parallel& parallel) {
  ElementwiseArgs args;
  args.a_zero = static_cast<float>(q.zero_point);
  args.a_multiplier = q.scale;
  split(n, parallel,
        [&](int64_t begin, int64_t count) { small_ops(isa).dequantize(x + begin, y + begin, count, args); });
}

void requantize(const uint8_t* x, uint8_t* y, int64_t n, Affine xq, Affine yq, Isa isa,
                const Parallel& parallel) {
  const ElementwiseArgs args = u8_args(Activation::none, xq, xq, yq);
  split(n, parallel,
        [&](int64_t begin, int64_t count) { small_ops(isa).requantize(x + begin, y + begin, count, args); });
}

void requantize_channels(const uint8_t* x, uint8_t* y, int64_t rows, int64_t channels, int64_t total_channels,
                         int64_t offset, Affine xq, Affine yq, Isa isa, const Parallel& parallel) {
  const ElementwiseArgs args = u8_args(Activation::none, xq, xq, yq);
  const int64_t rows_per_task = std::max<int64_t>(1, 16384 / channels);
  parallel.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      small_ops(isa).requantize(x + row * channels, y + row * total_channels + offset, channels, args);
    }
  });
}

void convert_f32_to_bf16(const float* x, uint16_t* y, int64_t n, Isa isa, const Parallel& parallel) {
  split(n, parallel,
        [&](int64_t begin, int64_t count) { small_ops(isa).f32_to_bf16(x + begin, y + begin, count); });
}

void convert_bf16_to_f32(const uint16_t* x, float* y, int64_t n, Isa isa, const Parallel& parallel) {
  split(n, parallel,
        [&](int64_t begin, int64_t count) { small_ops(isa).bf16_to_f32(x + begin, y + begin, count); });
}

void softmax(Element type, const void* x, void* y, int64_t rows, int64_t columns, Isa isa,
             const Parallel& parallel) {
  if (type != Element::f32 && type != Element::bf16) fail("kernels.softmax", "expected f32 or bf16 elements");
  if (columns < 1) return;
  const int64_t rows_per_task = std::max<int64_t>(1, 4096 / columns);
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  parallel.run(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      small_ops(isa).softmax_row(type, at(x, type, row * columns), at(y, type, row * columns), columns);
    }
  });
}

}  // namespace ulp::kernels
