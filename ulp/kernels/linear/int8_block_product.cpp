#include "ulp/kernels/linear/int8_block_product.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/linear/int8_block_kernel.h"
#include "ulp/kernels/linear/int8_pack.h"

namespace ulp::kernels {
namespace {

/// The sums and what follows, one number at a time.
void plain_product(const Int8BlockProduct& p, const Parallel& parallel) {
  const int64_t blocks = ceil_div(p.inner, kScaleBlock);
  parallel.run(p.rows, [&](int64_t r, int) {
    const int8_t* a = p.a.codes + r * p.inner;
    const float* a_scale = p.a.scale + r / kScaleBlock * blocks;
    for (int64_t c = 0; c < p.columns; ++c) {
      const int8_t* b = p.b.codes + c * p.inner;
      const float* b_scale = p.b.scale + c / kScaleBlock * blocks;
      float total = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        int32_t sum = 0;
        const int64_t end = std::min(p.inner, (block + 1) * kScaleBlock);
        for (int64_t k = block * kScaleBlock; k < end; ++k) sum += int32_t{a[k]} * int32_t{b[k]};
        total = total + static_cast<float>(sum) * (a_scale[block] * b_scale[block]);
      }
      const float v = total + (p.bias != nullptr ? p.bias[c] : 0.0F);
      const int64_t at = r * p.columns + c;
      if (p.output == DataType::bf16) {
        static_cast<uint16_t*>(p.y)[at] = float_to_bf16(v);
      } else {
        static_cast<float*>(p.y)[at] = v;
      }
    }
  });
}

/// Where the parts of the workspace begin.
struct Layout {
  int64_t blocks, units, row_bytes, groups, panel_bytes;  ///< a group: 32 columns
  int64_t a, b, start, bias, end;

  Layout(const Int8BlockProduct& p, const Int8BlockKernels& kernels)
      : blocks(ceil_div(p.inner, kScaleBlock)),
        units(blocks * kScaleBlock / kernels.unit),
        row_bytes(staged_row_bytes(units)),
        groups(ceil_div(p.columns, kScaleBlock)),
        panel_bytes(units * kernels.lanes * 4) {
    int64_t at = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t begin = at;
      at += round_up(bytes, kCacheLine);
      return begin;
    };
    a = take(p.rows * row_bytes);
    b = take(groups * kScaleBlock / kernels.lanes * panel_bytes);
    start = take(groups * blocks * kScaleBlock * 4);
    bias = take(groups * kScaleBlock * 4);
    end = at;
  }
};

class TiledProduct {
 public:
  TiledProduct(const Int8BlockProduct& product, const Int8BlockKernels& kernels, void* workspace)
      : p_(product),
        kernels_(kernels),
        layout_(product, kernels),
        memory_(static_cast<uint8_t*>(workspace)) {}

  void run(const Parallel& parallel) const {
    stage_codes({p_.a.codes, p_.inner, p_.rows, p_.inner, kernels_.unit}, layout_.units, memory_ + layout_.a,
                parallel);
    parallel.run(layout_.groups, [&](int64_t group, int) { pack(group); });
    // Rows of blocks whose codes stay in the second-level cache, equally many for each worker.
    const int64_t all = ceil_div(p_.rows, kScaleBlock);
    const int64_t cached = std::max<int64_t>(1, second_level_cache() / 4 / (layout_.row_bytes * kScaleBlock));
    const int64_t tasks = std::min(all, round_up(ceil_div(all, cached), parallel.workers()));
    parallel.run(tasks, [&](int64_t task, int) {
      const int64_t begin = all * task / tasks, end = all * (task + 1) / tasks;
      for (int64_t group = 0; group < layout_.groups; ++group) {
        for (int64_t row = begin; row < end; ++row) multiply(row, group);
      }
    });
  }

 private:
  template <typename T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  void pack(int64_t group) const {
    const CodeRows codes{p_.b.codes, p_.inner, p_.columns, p_.inner, kernels_.unit};
    const int64_t panels = kScaleBlock / kernels_.lanes;
    for (int64_t panel = group * panels; panel < (group + 1) * panels; ++panel) {
      pack_codes(codes, panel, kernels_.lanes, layout_.units,
                 memory_ + layout_.b + panel * layout_.panel_bytes);
    }
    for (int64_t i = 0; i < kScaleBlock; ++i) {
      const int64_t c = group * kScaleBlock + i;
      const bool there = c < p_.columns;
      at<float>(layout_.bias)[c] = there && p_.bias != nullptr ? p_.bias[c] : 0.0F;
      for (int64_t block = 0; block < layout_.blocks; ++block) {
        at<int32_t>(layout_.start)[(group * layout_.blocks + block) * kScaleBlock + i] =
            there && codes.bytes() ? (kernels_.input_offset - 128) * sum_of(c, block) : 0;
      }
    }
  }
  /// Of the codes of a column of `b` in a block: what the 128 that codes of `a` were given adds is taken
  /// away.
  int32_t sum_of(int64_t column, int64_t block) const {
    const int8_t* codes = p_.b.codes + column * p_.inner;
    const int64_t end = std::min(p_.inner, (block + 1) * kScaleBlock);
    int32_t sum = 0;
    for (int64_t k = block * kScaleBlock; k < end; ++k) sum += codes[k];
    return sum;
  }

  /// One block of the result, in tiles of nearly equally many rows.
  void multiply(int64_t row, int64_t group) const {
    const int64_t first = row * kScaleBlock, count = std::min(kScaleBlock, p_.rows - first);
    const int64_t column = group * kScaleBlock, bytes = element_bytes(p_.output);
    Int8BlockTileArgs args{};
    args.a_step = layout_.row_bytes;
    args.b = memory_ + layout_.b + group * (kScaleBlock / kernels_.lanes) * layout_.panel_bytes;
    args.b_panel = layout_.panel_bytes;
    args.start = at<int32_t>(layout_.start) + group * layout_.blocks * kScaleBlock;
    args.blocks = layout_.blocks;
    args.a_scale = p_.a.scale + row * layout_.blocks;
    args.b_scale = p_.b.scale + group * layout_.blocks;
    args.bias = at<float>(layout_.bias) + column;
    args.output = p_.output;
    args.y_step = p_.columns;
    args.columns = p_.columns - column;
    const int64_t tiles = ceil_div(count, kMaxInt8BlockRows);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t r = first + count * tile / tiles, end = first + count * (tile + 1) / tiles;
      args.a = memory_ + layout_.a + r * layout_.row_bytes;
      args.y = static_cast<uint8_t*>(p_.y) + (r * p_.columns + column) * bytes;
      kernels_.tile[end - r](args);
    }
  }

  const Int8BlockProduct& p_;
  const Int8BlockKernels& kernels_;
  Layout layout_;
  uint8_t* memory_;
};

/// Null: plain loops.
constexpr Variant<const Int8BlockKernels*> kKernels[] = {
    {Isa::avx512_vnni, ULP_ON_X86(&kInt8BlocksAvx512Vnni)},
    {Isa::avx512, ULP_ON_X86(&kInt8BlocksAvx512)},
    {Isa::avx2, ULP_ON_X86(&kInt8BlocksAvx2)},
    {Isa::neon_i8mm, ULP_ON_ARM(&kInt8BlocksNeonI8mm)},
    {Isa::neon_dotprod, ULP_ON_ARM(&kInt8BlocksNeonDotprod)},
    {Isa::neon, ULP_ON_ARM(&kInt8BlocksNeon)},
    {Isa::portable, nullptr},
};

}  // namespace

size_t int8_block_product_workspace(const Int8BlockProduct& product, Isa isa) {
  const Int8BlockKernels* kernels = first_admitted(kKernels, isa);
  return kernels == nullptr ? 0 : static_cast<size_t>(Layout(product, *kernels).end);
}

void int8_block_product(const Int8BlockProduct& product, void* workspace, Isa isa, const Parallel& parallel) {
  if (product.output != DataType::f32 && product.output != DataType::bf16) {
    fail("kernels.int8_block_product", "expected a result in f32 or bf16, got ", to_string(product.output));
  }
  if (product.rows < 1 || product.columns < 1) return;
  if (const Int8BlockKernels* kernels = first_admitted(kKernels, isa)) {
    return TiledProduct(product, *kernels, workspace).run(parallel);
  }
  plain_product(product, parallel);
}

}  // namespace ulp::kernels
