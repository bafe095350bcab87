#include "ulp/kernels/elementwise/elementwise.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/common/clamp.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"
#include "ulp/kernels/elementwise/small_ops.h"
#include "ulp/kernels/elementwise/small_ops_table.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

const uint8_t* at(const void* p, DataType type, int64_t i) {
  return static_cast<const uint8_t*>(p) + i * element_bytes(type);
}
uint8_t* at(void* p, DataType type, int64_t i) {
  return static_cast<uint8_t*>(p) + i * element_bytes(type);
}

ElementwiseArgs float_args(Activation activation) {
  ElementwiseArgs args;
  args.lo = clamp_of(activation).low;
  args.hi = clamp_of(activation).high;
  return args;
}

/// The codes that a clamp of codes keeps.
ElementwiseArgs code_args(Activation activation, Affine q) {
  ElementwiseArgs args;
  args.lo = __builtin_nearbyintf(clamp_of(activation, q).low) + static_cast<float>(q.zero_point);
  args.hi = __builtin_nearbyintf(clamp_of(activation, q).high) + static_cast<float>(q.zero_point);
  return args;
}

constexpr Variant<const SmallOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kSmallOpsAvx512)},
                                                {Isa::avx2, ULP_ON_X86(&kSmallOpsAvx2)},
                                                {Isa::portable, &kSmallOpsPortable}};

}  // namespace

const SmallOps& small_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

void check_small_type(const char* where, DataType type) {
  if (type != DataType::f32 && type != DataType::bf16 && type != DataType::u8) {
    fail(where, "expected f32, bf16 or u8 elements, got ", to_string(type));
  }
}

ElementwiseArgs u8_args(Activation activation, Affine a, Affine b, Affine y) {
  ElementwiseArgs args;
  args.a_zero = static_cast<float>(a.zero_point);
  args.b_zero = static_cast<float>(b.zero_point);
  args.a_multiplier = a.scale / y.scale;
  args.b_multiplier = b.scale / y.scale;
  args.lo = clamp_of(activation, y).low;
  args.hi = clamp_of(activation, y).high;
  args.y_zero = y.zero_point;
  return args;
}

void activate(DataType type, Activation activation, const void* x, void* y, int64_t n, Affine q, Isa isa,
              const Parallel& parallel) {
  check_small_type("kernels.activate", type);
  if (is_smooth_activation(activation)) {
    if (type != DataType::f32) {
      fail("kernels.activate", "expected f32 elements for ", to_string(activation), ", got ",
           to_string(type));
    }
    split(n, parallel, [&](int64_t begin, int64_t count) {
      row_ops(isa).curve(activation, static_cast<const float*>(x) + begin, static_cast<float*>(y) + begin,
                         count);
    });
    return;
  }
  const ElementwiseArgs args = type == DataType::u8 ? code_args(activation, q) : float_args(activation);
  split(n, parallel, [&](int64_t begin, int64_t count) {
    small_ops(isa).clamp(type, at(x, type, begin), at(y, type, begin), count, args);
  });
}

void add(DataType type, Activation activation, const void* a, const void* b, void* y, int64_t n, Affine aq,
         Affine bq, Affine yq, Isa isa, const Parallel& parallel) {
  check_small_type("kernels.add", type);
  if (is_smooth_activation(activation)) {
    fail("kernels.add", "expected an activation that clamps after a sum, got ", to_string(activation));
  }
  const ElementwiseArgs args =
      type == DataType::u8 ? u8_args(activation, aq, bq, yq) : float_args(activation);
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
  const SmallOps& ops = small_ops(isa);
  parallel.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      ops.requantize(x + row * channels, y + row * total_channels + offset, channels, args);
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

void softmax(DataType type, const void* x, void* y, int64_t rows, int64_t columns, Isa isa,
             const Parallel& parallel) {
  if (type != DataType::f32 && type != DataType::bf16) {
    fail("kernels.softmax", "expected f32 or bf16 elements, got ", to_string(type));
  }
  if (columns < 1) return;
  const int64_t rows_per_task = std::max<int64_t>(1, 4096 / columns);
  const SmallOps& ops = small_ops(isa);
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  parallel.run(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      ops.softmax_row(type, at(x, type, row * columns), at(y, type, row * columns), columns);
    }
  });
}

}  // namespace ulp::kernels
