// The blocks of a layer that are not zero; internal to the room.
#pragma once

#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/sparse/block_kernel.h"

namespace ulp::kernels {

/// What BlockTileArgs points to, for all panels.
class BlockPack {
 public:
  BlockPack(const ConvConfig& config, const ConvWeights& weights, const BlockKernels& kernels);

  int64_t panels() const { return panels_; }
  int64_t blocks() const { return begin()[panels_]; }
  /// Share of the blocks that is kept.
  double density() const { return static_cast<double>(blocks()) / static_cast<double>(panels_ * in_row_); }
  int64_t block_bytes() const { return block_bytes_; }
  const int64_t* begin() const { return begin_.as<int64_t>(); }
  const uint16_t* index() const { return index_.as<uint16_t>(); }
  const uint8_t* values() const { return values_.data(); }

 private:
  int64_t panels_, in_row_, block_bytes_;
  AlignedBuffer begin_, index_, values_;
};

/// Blocks along the inputs of a layer.
int64_t blocks_in_row(const ConvConfig& config, const BlockKernels& kernels);

}  // namespace ulp::kernels
