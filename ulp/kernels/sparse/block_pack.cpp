#include "ulp/kernels/sparse/block_pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/sparse/sparse_linear.h"

namespace ulp::kernels {
namespace {

/// Zeros of floats have either sign.
bool is_zero(const uint8_t* block, int64_t bytes, bool floats) {
  const uint32_t mask = floats ? 0x7fffffffU : 0xffffffffU;
  uint32_t seen = 0;
  for (int64_t i = 0; i < bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, block + i, 4);
    seen |= word & mask;
  }
  return seen == 0;
}

/// Counts over weights of type T: a weight is zero where none of its bits of `mask` is set.
template <typename T>
ZeroCount count(const T* weights, int64_t out, int64_t in, int64_t inputs, T mask) {
  ZeroCount found{.weights = out * in};
  const int64_t in_row = ceil_div(in, inputs);
  found.blocks = ceil_div(out, kBlockOutputs) * in_row;
  std::vector<T> seen(static_cast<size_t>(in));
  for (int64_t first = 0; first < out; first += kBlockOutputs) {
    const int64_t last = std::min(out, first + kBlockOutputs);
    std::fill(seen.begin(), seen.end(), T{0});
    for (int64_t o = first; o < last; ++o) {
      const T* row = weights + o * in;
      int64_t nonzero = 0;
      for (int64_t i = 0; i < in; ++i) {
        const T bits = row[i] & mask;
        seen[static_cast<size_t>(i)] |= bits;
        nonzero += bits != 0;
      }
      found.nonzero += nonzero;
    }
    for (int64_t i = 0; i < in; i += inputs) {
      T any = 0;
      for (int64_t j = i; j < std::min(in, i + inputs); ++j) any |= seen[static_cast<size_t>(j)];
      found.kept += any != 0;
    }
  }
  return found;
}

}  // namespace

bool is_linear(const ConvShape& shape) {
  return is_flat(shape) && shape.groups == 1;
}

ZeroCount count_zeros(const ConvConfig& config, const ConvWeights& weights) {
  check_layer(config, weights);
  const ConvShape& s = config.shape;
  if (!is_linear(s)) fail("kernels.count_zeros", "expected a linear layer, got a convolution");
  const int64_t out = s.out_channels, in = s.in_channels;
  if (config.input == DataType::u8) {
    return count(reinterpret_cast<const uint8_t*>(weights.i8), out, in, 4, uint8_t{0xff});
  }
  if (config.input == DataType::bf16 && weights.bf16 != nullptr) {
    return count(weights.bf16, out, in, 1, uint16_t{0x7fff});
  }
  return count(reinterpret_cast<const uint32_t*>(weights.f32), out, in, 1, 0x7fffffffU);
}

int64_t blocks_in_row(const ConvConfig& config, const BlockKernels& kernels) {
  return ceil_div(config.shape.in_channels, kernels.unit * kernels.units);
}

BlockPack::BlockPack(const ConvConfig& config, const ConvWeights& weights, const BlockKernels& kernels)
    : panels_(ceil_div(config.shape.out_channels, kBlockOutputs)),
      in_row_(blocks_in_row(config, kernels)),
      block_bytes_(int64_t{kernels.units} * kBlockOutputs * 4),
      begin_((panels_ + 1) * 8) {
  const bool floats = kernels.stage == DataType::f32;
  const DataType type = kernels.stage == DataType::u8 ? DataType::i8 : kernels.stage;
  const AlignedBuffer dense = pack_panels(config, weights, tap_layout(config.shape, kernels.unit),
                                          kernels.unit, kBlockOutputs, type, in_row_ * kernels.units);
  std::vector<uint8_t> kept(static_cast<size_t>(panels_ * in_row_));
  int64_t* begin = begin_.as<int64_t>();
  for (int64_t p = 0; p < panels_; ++p) {
    begin[p + 1] = begin[p];
    for (int64_t i = 0; i < in_row_; ++i) {
      const int64_t at = p * in_row_ + i;
      const bool keep = !is_zero(dense.data() + at * block_bytes_, block_bytes_, floats);
      kept[static_cast<size_t>(at)] = keep;
      begin[p + 1] += keep;
    }
  }
  index_ = AlignedBuffer(blocks() * 2);
  values_ = AlignedBuffer(blocks() * block_bytes_);
  int64_t next = 0;
  for (int64_t at = 0; at < panels_ * in_row_; ++at) {
    if (kept[static_cast<size_t>(at)] == 0) continue;
    index_.as<uint16_t>()[next] = static_cast<uint16_t>(at % in_row_);
    std::memcpy(values_.data() + next * block_bytes_, dense.data() + at * block_bytes_,
                static_cast<size_t>(block_bytes_));
    ++next;
  }
}

}  // namespace ulp::kernels
