// The driver of block-sparse layers, for the kernels of any instruction set.
#include <algorithm>
#include <cstring>
#include <string>

#include "ulp/kernels/conv/work_split.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/sparse/block_pack.h"
#include "ulp/kernels/sparse/sparse_linear.h"

namespace ulp::kernels {
namespace {

/// Rows cut into tiles of nearly equal width.
struct TileRows {
  int64_t rows, tiles;
  TileRows(int64_t rows_given, int64_t most) : rows(rows_given), tiles(ceil_div(rows_given, most)) {}
  int64_t first(int64_t tile) const { return tile * (rows / tiles) + std::min(tile, rows % tiles); }
  int64_t count(int64_t tile) const { return rows / tiles + (tile < rows % tiles); }
  int64_t widest() const { return count(0); }
};

/// Rows of a tile: as many as the kernels take. Where half of them would stay in the first level of the cache, that pays
/// once most blocks are there: each panel then reads most of the rows.
int64_t tile_rows(int64_t most, int64_t row_bytes, double density) {
  constexpr int64_t kNear = 36 << 10;
  const bool half = most * row_bytes > kNear && most / 2 * row_bytes <= kNear && density > 0.35;
  return half ? most / 2 : most;
}

class BlockLinear final : public Conv {
 public:
  BlockLinear(const ConvConfig& config, const ConvWeights& weights, const BlockKernels& kernels)
      : kernels_(kernels),
        name_(std::string("linear_") + kernels.name),
        pixels_(config.shape.in_h * config.shape.in_w),
        in_(config.shape.in_channels),
        out_(config.shape.out_channels),
        input_bytes_(element_bytes(config.input)),
        output_bytes_(element_bytes(config.output)),
        residual_bytes_(config.residual ? element_bytes(config.residual_type) : 0),
        row_units_(blocks_in_row(config, kernels) * kernels.units),
        row_bytes_(row_units_ * 4),
        as_it_is_(kernels.copy == nullptr && in_ * input_bytes_ == row_bytes_),
        cache_rows_(std::max<int64_t>(
                        1, std::max(kStageBytes, second_level_cache() / 4) / (row_bytes_ * kMostBlockRows)) *
                    kMostBlockRows),
        pack_(config, weights, kernels),
        most_rows_(tile_rows(kernels.max_rows[0], row_bytes_, pack_.density())),
        near_panels_(std::max<int64_t>(
            4, second_level_cache() / 4 * pack_.panels() / (pack_.blocks() * pack_.block_bytes() + 1))),
        // The last panel needs the channels behind it to exist.
        finish_(make_finish(config, weights, out_ + kBlockOutputs, config.input == DataType::u8,
                            kernels.input_offset)) {}

  size_t workspace_bytes(int64_t batch, int workers) const override {
    return static_cast<size_t>(workers * worker_bytes(batch * pixels_));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    const int64_t rows = batch * pixels_;
    if (rows < 1) return;
    const double macs = static_cast<double>(rows) * static_cast<double>(pack_.blocks() * kBlockOutputs) *
                        static_cast<double>(kernels_.unit * kernels_.units);
    const WorkSplit work = split_work({.images = 1,
                                       .rows = rows,
                                       .cache_rows = cache_rows_,
                                       .grain = most_rows_,
                                       .pairs = ceil_div(pack_.panels(), 2),
                                       .macs = macs,
                                       .weight_bytes = pack_.blocks() * pack_.block_bytes(),
                                       .input_bytes = rows * row_bytes_},
                                      parallel.workers());
    const Rows all{static_cast<const uint8_t*>(x),
                   residual_bytes_ == 0 ? nullptr : static_cast<const uint8_t*>(residual),
                   static_cast<uint8_t*>(y)};
    const int64_t bytes = worker_bytes(rows);
    parallel.run(work.tasks(), [&](int64_t i, int worker) {
      const WorkSplit::Task task = work.task(i);
      const TileRows tiles(task.end - task.first, most_rows_);
      const uint8_t* a = stage(all.x + task.first * in_ * input_bytes_, tiles,
                               static_cast<uint8_t*>(workspace) + worker * bytes);
      run_panels(a, tiles, task.first, panels_of_part(pack_.panels(), task.part, work.parts), all);
    });
  }

  std::string name() const override { return name_; }
  Density density(int64_t) const override { return {pack_.density(), pack_.density()}; }

 private:
  struct Rows {
    const uint8_t* x;
    const uint8_t* residual;  ///< or null
    uint8_t* y;
  };

  /// The rows of a task, and those of one tile before they are interleaved.
  int64_t worker_bytes(int64_t rows) const {
    return round_up((std::min(rows, cache_rows_) + kMostBlockRows) * row_bytes_, 64);
  }

  /// Brings the rows of all tiles into the form that the kernels read, or points to them where they have it.
  const uint8_t* stage(const uint8_t* x, const TileRows& tiles, uint8_t* buffer) const {
    if (tiles.widest() <= kRowsApart && as_it_is_) return x;
    uint8_t* widened = buffer + tiles.rows * row_bytes_;
    for (int64_t tile = 0; tile < tiles.tiles; ++tile) {
      const int64_t first = tiles.first(tile), count = tiles.count(tile);
      const uint8_t* from = x + first * in_ * input_bytes_;
      uint8_t* to = buffer + first * row_bytes_;
      const bool apart = count <= kRowsApart;
      if (apart || !as_it_is_) {
        for (int64_t m = 0; m < count; ++m)
          widen(from + m * in_ * input_bytes_, (apart ? to : widened) + m * row_bytes_);
        from = widened;
      }
      if (!apart) kernels_.interleave(from, row_bytes_, count, row_units_, to);
    }
    return buffer;
  }

  /// One row, with zeros up to the end of its last block.
  void widen(const uint8_t* from, uint8_t* to) const {
    const int64_t bytes = in_ * element_bytes(kernels_.stage);
    if (kernels_.copy == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      kernels_.copy(from, to, in_);
    }
    std::memset(to + bytes, 0, static_cast<size_t>(row_bytes_ - bytes));
  }

  /// log2 of the panels of the next tiles: few rows leave registers for many panels.
  int panel_choice(int64_t left, int64_t rows) const {
    if (left >= 4 && rows <= kernels_.max_rows[2]) return 2;
    return left >= 2 && rows <= kernels_.max_rows[1] ? 1 : 0;
  }

  /// A tile's inputs stay in the first level of the cache, and the weights that all tiles pass by in the second.
  void run_panels(const uint8_t* a, const TileRows& tiles, int64_t first_row, const PanelRange& range,
                  const Rows& all) const {
    for (int64_t begin = range.begin; begin < range.end; begin += near_panels_) {
      const PanelRange near{begin, std::min(range.end, begin + near_panels_)};
      for (int64_t tile = 0; tile < tiles.tiles; ++tile) {
        const int64_t row = tiles.first(tile);
        run_tile(a + row * row_bytes_, first_row + row, tiles.count(tile), near, all);
      }
    }
  }

  void run_tile(const uint8_t* a, int64_t row, int64_t rows, const PanelRange& range, const Rows& all) const {
    BlockTileArgs args{};
    args.out.finish = &finish_.finish;
    args.out.y_step = out_;
    args.a = a;
    args.a_step = row_bytes_;
    args.index = pack_.index();
    args.values = pack_.values();
    for (int64_t panel = range.begin; panel < range.end;) {
      const int log2 = panel_choice(range.end - panel, rows);
      const int64_t at = row * out_ + panel * kBlockOutputs;
      args.begin = pack_.begin() + panel;
      args.out.channel = panel * kBlockOutputs;
      args.out.channels = out_ - args.out.channel;
      args.out.y = all.y + at * output_bytes_;
      args.out.residual = all.residual == nullptr ? nullptr : all.residual + at * residual_bytes_;
      kernels_.tile[log2][rows](args);
      panel += 1 << log2;
    }
  }

  const BlockKernels& kernels_;
  std::string name_;
  int64_t pixels_, in_, out_, input_bytes_, output_bytes_, residual_bytes_;
  int64_t row_units_, row_bytes_;
  bool as_it_is_;  // a row lies in memory as the kernels read it
  int64_t cache_rows_;
  BlockPack pack_;
  int64_t most_rows_;    // of a tile
  int64_t near_panels_;  // whose weights stay in the second level of the cache
  FinishData finish_;
};

using MakeBlocks = std::unique_ptr<Conv> (*)(const ConvConfig&, const ConvWeights&);

template <const BlockKernels& kKernels>
std::unique_ptr<Conv> blocks(const ConvConfig& config, const ConvWeights& weights) {
  if (config.input != kKernels.input) return nullptr;
  return std::make_unique<BlockLinear>(config, weights, kKernels);
}

// clang-format off
constexpr Variant<MakeBlocks> kBlocks[] = {
    {Isa::avx512_vnni, ULP_ON_X86(blocks<kBlocksU8Avx512Vnni>)},
    {Isa::avx512, ULP_ON_X86(blocks<kBlocksF32Avx512>)},
    {Isa::avx512, ULP_ON_X86(blocks<kBlocksBf16Avx512>)},
    {Isa::avx512, ULP_ON_X86(blocks<kBlocksU8Avx512>)},
    {Isa::avx2, ULP_ON_X86(blocks<kBlocksF32Avx2>)},
    {Isa::avx2, ULP_ON_X86(blocks<kBlocksBf16Avx2>)},
    {Isa::avx2, ULP_ON_X86(blocks<kBlocksU8Avx2>)},
    {Isa::neon_i8mm, ULP_ON_ARM(blocks<kBlocksU8NeonI8mm>)},
    {Isa::neon_dotprod, ULP_ON_ARM(blocks<kBlocksU8NeonDotprod>)},
    {Isa::neon, ULP_ON_ARM(blocks<kBlocksF32Neon>)},
    {Isa::neon, ULP_ON_ARM(blocks<kBlocksBf16Neon>)},
    {Isa::neon, ULP_ON_ARM(blocks<kBlocksU8Neon>)},
    {Isa::portable, blocks<kBlocksF32Portable>},
    {Isa::portable, blocks<kBlocksBf16Portable>},
    {Isa::portable, blocks<kBlocksU8Portable>},
};
// clang-format on

/// Where make_conv() may take kernels that add two products before they add the sum.
bool sums_pairs(Isa isa) {
  const bool vectors = admits(isa, Isa::avx512_vnni) && cpu_features().avx512_bf16 && !cpu_features().intel;
  return vectors || admits(isa, Isa::amx) || admits(isa, Isa::amx_emulated) || admits(isa, Isa::neon_bf16);
}

}  // namespace

std::unique_ptr<Conv> make_block_linear(const ConvConfig& config, const ConvWeights& weights, Isa isa) {
  check_layer(config, weights);
  const int64_t inputs = config.input == DataType::u8 ? 4 : 1;
  if (!is_linear(config.shape) || ceil_div(config.shape.in_channels, inputs) > int64_t{1} << 16)
    return nullptr;
  if (config.input == DataType::bf16 && sums_pairs(isa)) return nullptr;
  return make_first(kBlocks, isa, config, weights);
}

}  // namespace ulp::kernels
