#include "ulp/kernels/linear/int8_product.h"

#include <algorithm>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/tile_panels.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/int8_pack.h"

namespace ulp::kernels {
namespace {

/// The sums and what follows, one number at a time.
void plain_product(const Int8Product& p, const Parallel& parallel) {
  parallel.run(p.rows, [&](int64_t r, int) {
    const int8_t* a = p.a.codes + r * p.a.step;
    const float row_scale = p.a.scale[p.a.scale_by_row ? r : 0];
    for (int64_t c = 0; c < p.columns; ++c) {
      const int8_t* b = p.b.codes + c * p.b.step;
      int32_t sum = 0;
      for (int64_t k = 0; k < p.inner; ++k) sum += int32_t{a[k]} * int32_t{b[k]};
      float v = static_cast<float>(sum) * (row_scale * p.b.scale[p.b.scale_by_row ? c : 0]);
      v = v + (p.bias != nullptr ? p.bias[c] : 0.0F);
      const int64_t at = r * p.columns + c;
      if (p.output == DataType::bf16) {
        static_cast<uint16_t*>(p.y)[at] = float_to_bf16(v);
      } else {
        float* y = static_cast<float*>(p.y) + at;
        *y = p.accumulate ? v + *y : v;
      }
    }
  });
}

/// Where the parts of the workspace begin.
struct Layout {
  int64_t units, row_bytes, panels, panel_bytes;
  int64_t a, b, row_scale, row_zero, scale, sums, bias, start, end;

  Layout(const Int8Product& p, const TileKernels& kernels)
      : units(ceil_div(p.inner, kernels.unit)),
        row_bytes(staged_row_bytes(units, kernels.unit_bytes)),
        panels(ceil_div(p.columns, kernels.lanes)),
        panel_bytes(units * kernels.lanes * kernels.unit_bytes) {
    int64_t at = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t begin = at;
      at += round_up(bytes, kCacheLine);
      return begin;
    };
    const int64_t padded = panels * kernels.lanes * 4;
    a = take(p.rows * row_bytes);
    b = take(panels * panel_bytes);
    row_scale = take(p.rows * 4);
    row_zero = take(p.rows * 4);
    scale = take(padded);
    sums = take(padded);
    bias = take(padded);
    start = take(padded);
    end = at;
  }
};

class TiledProduct {
 public:
  TiledProduct(const Int8Product& product, const TileKernels& kernels, void* workspace)
      : p_(product),
        kernels_(kernels),
        layout_(product, kernels),
        memory_(static_cast<uint8_t*>(workspace)) {}

  void run(const Parallel& parallel) const {
    stage(parallel);
    pack(parallel);
    multiply(parallel);
  }

 private:
  template <typename T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  bool bytes() const { return kernels_.unit == kernels_.unit_bytes; }

  void stage(const Parallel& parallel) const {
    stage_codes({p_.a.codes, p_.a.step, p_.rows, p_.inner, kernels_.unit, kernels_.unit_bytes}, layout_.units,
                memory_ + layout_.a, parallel);
    for (int64_t r = 0; r < p_.rows; ++r) {
      at<float>(layout_.row_scale)[r] = p_.a.scale[p_.a.scale_by_row ? r : 0];
      at<int32_t>(layout_.row_zero)[r] = bytes() ? 128 : 0;
    }
  }

  void pack(const Parallel& parallel) const {
    const CodeRows codes{p_.b.codes, p_.b.step, p_.columns, p_.inner, kernels_.unit, kernels_.unit_bytes};
    parallel.run(layout_.panels, [&](int64_t panel, int) {
      pack_codes(codes, panel, kernels_.lanes, layout_.units,
                 memory_ + layout_.b + panel * layout_.panel_bytes);
      for (int64_t c = panel * kernels_.lanes; c < (panel + 1) * kernels_.lanes; ++c) {
        const bool there = c < p_.columns;
        at<float>(layout_.scale)[c] = there ? p_.b.scale[p_.b.scale_by_row ? c : 0] : 0.0F;
        at<float>(layout_.bias)[c] = there && p_.bias != nullptr ? p_.bias[c] : 0.0F;
        const int32_t sum = there && bytes() ? sum_of(c) : 0;
        at<int32_t>(layout_.sums)[c] = sum;
        at<int32_t>(layout_.start)[c] = kernels_.input_offset * sum;
      }
    });
  }
  int32_t sum_of(int64_t column) const {
    const int8_t* codes = p_.b.codes + column * p_.b.step;
    int32_t sum = 0;
    for (int64_t k = 0; k < p_.inner; ++k) sum += codes[k];
    return sum;
  }

  void multiply(const Parallel& parallel) const {
    Finish finish;
    finish.lo = -std::numeric_limits<float>::infinity();
    finish.hi = std::numeric_limits<float>::infinity();
    finish.bias = memory_ + layout_.start;
    finish.multiplier = at<float>(layout_.scale);
    finish.weight_sum = at<int32_t>(layout_.sums);
    finish.bias_f32 = at<float>(layout_.bias);
    finish.output = p_.output;
    uint8_t* y = static_cast<uint8_t*>(p_.y);
    const TileOutput output{.y = y,
                            .y_bytes = element_bytes(p_.output),
                            .residual = p_.accumulate ? y : nullptr,
                            .residual_bytes = 4,
                            .row_scale = at<float>(layout_.row_scale),
                            .row_zero = at<int32_t>(layout_.row_zero)};
    const TilePanels panels(p_.columns, layout_.units, memory_ + layout_.b, kernels_);
    const int64_t no_offset = 0;
    TileArgs args{};
    args.a_step = layout_.row_bytes;
    args.taps = &no_offset;
    args.finish = &finish;
    const Blocks split = blocks(parallel.workers());
    parallel.run(split.rows * split.parts, [&](int64_t task, int) {
      const int64_t block = task / split.parts;
      const int64_t first = p_.rows * block / split.rows, end = p_.rows * (block + 1) / split.rows;
      const PixelRows rows{memory_ + layout_.a + first * layout_.row_bytes, 0, first, 1, end - first};
      panels.run(rows, output, 0, task % split.parts, split.parts, args);
    });
  }

  /// Blocks of rows that stay in the second-level cache, equally long and as many for each worker; few rows
  /// are one block, and the panels are shared instead.
  struct Blocks {
    int64_t rows, parts;
  };
  Blocks blocks(int workers) const {
    const int64_t cached =
        std::max<int64_t>(1, second_level_cache() / 4 / (layout_.row_bytes * kMaxTilePixels)) *
        kMaxTilePixels;
    const int64_t needed = ceil_div(p_.rows, cached);
    if (p_.rows < 2 * kMaxTilePixels * workers) {
      return {needed, std::min<int64_t>(ceil_div(layout_.panels, 2), 2 * workers)};
    }
    return {round_up(needed, workers), 1};
  }

  const Int8Product& p_;
  const TileKernels& kernels_;
  Layout layout_;
  uint8_t* memory_;
};

/// Null: plain loops.
constexpr Variant<const TileKernels*> kKernels[] = {
    {Isa::avx512_vnni, ULP_ON_X86(&kTilesU8Avx512Vnni)},
    {Isa::avx512, ULP_ON_X86(&kTilesU8Avx512)},
    {Isa::avx2, ULP_ON_X86(&kTilesWideU8Avx2)},
    {Isa::neon_i8mm, ULP_ON_ARM(&kTilesU8NeonI8mm)},
    {Isa::neon_dotprod, ULP_ON_ARM(&kTilesU8NeonDotprod)},
    {Isa::neon, ULP_ON_ARM(&kTilesU8Neon)},
    {Isa::portable, nullptr},
};

}  // namespace

size_t int8_product_workspace(const Int8Product& product, Isa isa) {
  const TileKernels* kernels = first_admitted(kKernels, isa);
  return kernels == nullptr ? 0 : static_cast<size_t>(Layout(product, *kernels).end);
}

void int8_product(const Int8Product& product, void* workspace, Isa isa, const Parallel& parallel) {
  constexpr const char* kWhere = "kernels.int8_product";
  if (product.inner < 0 || product.inner > kMaxInt8Inner) {
    fail(kWhere, "expected sums of up to ", kMaxInt8Inner, " products, got ", product.inner);
  }
  if (product.output != DataType::f32 && (product.output != DataType::bf16 || product.accumulate)) {
    fail(kWhere, "expected a result in f32, or in bf16 that is not added to, got ",
         to_string(product.output));
  }
  if (product.rows < 1 || product.columns < 1) return;
  if (const TileKernels* kernels = first_admitted(kKernels, isa)) {
    return TiledProduct(product, *kernels, workspace).run(parallel);
  }
  plain_product(product, parallel);
}

}  // namespace ulp::kernels
