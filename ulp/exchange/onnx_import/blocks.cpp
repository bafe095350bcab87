// Weights in codes with a scale a block: what weight-only quantization writes.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/kept_name.h"
#include "ulp/exchange/onnx_import/quantized.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Kind = graph::Attribute::Kind;

/// Codes [rows, columns] with a scale for each block of columns.
struct Blocks {
  Tensor codes, scale, zero_point;  ///< the latter undefined: 0
  int64_t size = 0;                 ///< columns of a block
  std::string name;
};

Tensor stored_part(Call& call, const FileNode& node, size_t i, const char* what) {
  const bool there = i < node.inputs.size() && !node.inputs[i].empty();
  const Tensor found = there ? call.run().store().find(node.inputs[i]) : Tensor();
  if (!found.defined()) call.refuse("expected the ", what, " of codes in blocks to be a tensor of the file");
  return found;
}

/// As matrices whose blocks are in the columns.
Blocks blocks_of(Call& call, const FileNode& node) {
  const Call inner(call.run(), node, Call::As::known);
  Blocks blocks{.codes = stored_part(call, node, 0, "numbers"),
                .scale = stored_part(call, node, 1, "scale"),
                .zero_point = {},
                .size = inner.attribute("block_size", int64_t{0}),
                .name = kept_name(call, node, 0, node.inputs[0])};
  if (node.inputs.size() > 2 && !node.inputs[2].empty())
    blocks.zero_point = stored_part(call, node, 2, "zero point");
  const auto is_code = [](const Tensor& t) {
    return t.scalar_type() == at::kChar || t.scalar_type() == at::kByte;
  };
  const bool matrices = blocks.codes.dim() == 2 && blocks.scale.dim() == 2 && blocks.codes.numel() > 0;
  if (!matrices || !is_code(blocks.codes) || !at::isFloatingType(blocks.scale.scalar_type()))
    call.refuse("expected codes in blocks to be a matrix of at most 8 bits, got ", blocks.codes.scalar_type(),
                " ", blocks.codes.sizes());
  if (inner.dim(inner.attribute("axis", int64_t{1}), 2) == 0) {
    blocks.codes = blocks.codes.t();
    blocks.scale = blocks.scale.t();
    if (blocks.zero_point.defined()) blocks.zero_point = blocks.zero_point.t();
  }
  const int64_t columns = blocks.codes.size(1);
  const bool whole = blocks.size > 0 && blocks.scale.size(0) == blocks.codes.size(0) &&
                     blocks.scale.size(1) == (columns - 1) / blocks.size + 1;
  const bool fits =
      !blocks.zero_point.defined() || (blocks.zero_point.sizes() == blocks.scale.sizes() &&
                                       blocks.zero_point.scalar_type() == blocks.codes.scalar_type());
  if (!whole || !fits)
    call.refuse("expected a scale, and a zero point if any, for each block of ", blocks.size, " codes of ",
                blocks.codes.sizes(), ", got ", blocks.scale.sizes());
  const bool zeros = blocks.zero_point.defined() && !blocks.zero_point.any().item<bool>();
  if (zeros && blocks.codes.scalar_type() == at::kChar) blocks.zero_point.reset();  // as if there were none
  return blocks;
}

/// The numbers: (q - z) s.
Tensor values_of(const Blocks& blocks) {
  const Tensor places = at::arange(blocks.codes.size(1), at::kLong).floor_divide(blocks.size);
  const auto spread = [&](const Tensor& of_blocks) { return of_blocks.index_select(1, places); };
  Tensor centered = blocks.codes.to(at::kFloat);
  if (blocks.zero_point.defined()) centered = centered - spread(blocks.zero_point.to(at::kFloat));
  return (centered * spread(blocks.scale.to(at::kFloat))).contiguous();
}

/// Whether the last block pads a row to no more than the file could have asked for.
bool pads_little(const Blocks& blocks) {
  constexpr int64_t kUsual = 256;
  return blocks.size <= kUsual || blocks.size <= 2 * blocks.codes.size(1);
}

/// Whether two codes lie in a byte.
bool packs(const Blocks& blocks) {
  return blocks.size % 2 == 0 && pads_little(blocks);
}

/// [rows, groups, size]; the last group is filled with zeros.
Tensor grouped(const Blocks& blocks, const Tensor& codes) {
  const int64_t groups = blocks.scale.size(1);
  return at::constant_pad_nd(codes, {0, groups * blocks.size - codes.size(1)})
      .reshape({codes.size(0), groups, blocks.size});
}

bool all_between(const Tensor& codes, int64_t low, int64_t high) {
  return codes.min().item<int64_t>() >= low && codes.max().item<int64_t>() <= high;
}

/// Codes that are within 4 bits: moved to be u8 around their zero point, two in a byte [rows, groups, size /
/// 2].
Tensor packed(const Blocks& blocks, int64_t moved) {
  const Tensor nibbles = (blocks.codes.to(at::kShort) + moved).to(at::kByte);
  const Tensor pairs = grouped(blocks, nibbles).unflatten(2, {blocks.size / 2, 2});
  return pairs.select(3, 0).bitwise_or(pairs.select(3, 1).bitwise_left_shift(4)).contiguous();
}

}  // namespace

Tensor block_weight(Call& call, const FileNode& node) {
  const Blocks blocks = blocks_of(call, node);
  Store& store = call.run().store();
  const auto buffer = [&](const std::string& name, const auto& make) {
    return store.attribute(name, Kind::buffer, make);
  };
  const bool is_signed = blocks.codes.scalar_type() == at::kChar, zeros = blocks.zero_point.defined();
  const int64_t moved = is_signed ? 8 : 0, columns = blocks.codes.size(1);
  const bool codes_stay = store.options().qdq == QdqForm::codes;
  const std::string scale_name = kept_name(call, node, 1, node.inputs[1], ".scale");
  if (codes_stay && packs(blocks) && all_between(blocks.codes, -moved, 15 - moved) &&
      (!zeros || all_between(blocks.zero_point, -moved, 15 - moved))) {
    const Tensor codes = buffer(blocks.name, [&] { return packed(blocks, moved); });
    const Tensor scale = buffer(scale_name, [&] { return blocks.scale.to(at::kFloat).contiguous(); });
    // Without a zero point it is 8 for the operator; unsigned codes have 0.
    if (is_signed && !zeros) return quant::dequantize_weight(codes, scale, std::nullopt, columns);
    const auto make_zero = [&] {
      const Tensor given = zeros ? blocks.zero_point : at::zeros_like(blocks.scale, at::kByte);
      return (given.to(at::kShort) + moved).to(at::kByte).contiguous();
    };
    const std::string zero_name =
        zeros ? kept_name(call, node, 2, node.inputs[2], ".zero_point") : blocks.name + ".zero_point";
    return quant::dequantize_weight(codes, scale, buffer(zero_name, make_zero), columns);
  }
  const Tensor first = blocks.scale.narrow(1, 0, 1);
  if (codes_stay && is_signed && !zeros && at::equal(first.expand_as(blocks.scale), blocks.scale)) {
    const Tensor codes = buffer(blocks.name, [&] { return blocks.codes.contiguous(); });
    const Tensor scale = buffer(scale_name, [&] { return first.reshape({-1}).to(at::kFloat).contiguous(); });
    return quant::dequantize_weight(codes, scale, std::nullopt, columns);
  }
  if (codes_stay && is_signed && !zeros && pads_little(blocks)) {
    const Tensor codes = buffer(blocks.name, [&] { return grouped(blocks, blocks.codes).contiguous(); });
    const Tensor scale = buffer(scale_name, [&] { return blocks.scale.to(at::kFloat).contiguous(); });
    return quant::dequantize_weight(codes, scale, std::nullopt, columns);
  }
  return store.attribute(blocks.name, Kind::parameter, [&] { return values_of(blocks); });
}

}  // namespace ulp::exchange::onnx_import
