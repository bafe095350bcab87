// Weights in 8 or 4 bits, whose arithmetic is in float. A linear layer reads them as [in, out] in blocks along `in`, from which
// ONNX Runtime and OpenVINO make one operator that unpacks as it multiplies.
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

constexpr int64_t kBlockOpset = 21;

/// Codes of a weight as matrices: what ulp::dequantize_weight reads.
struct Blocks {
  at::Tensor codes;       ///< [rows, columns]; s8, or u8 of 4 bits
  at::Tensor scale;       ///< f32 [rows, groups]
  at::Tensor zero_point;  ///< u8 [rows, groups]; undefined: 0, of 4 bits 8
  int64_t group = 0;      ///< columns
  bool nibbles = false;
};

Blocks blocks_of(const Builder& builder, const Node& node) {
  const at::Tensor codes = stored_argument(builder, node, "codes"),
                   scale = stored_argument(builder, node, "scale");
  const int64_t columns = int_arg(node, "columns"), rows = codes.size(0);
  if (codes.scalar_type() == at::kChar)
    return {.codes = codes.flatten(1).narrow(1, 0, columns),
            .scale = scale.reshape({rows, -1}),
            .zero_point = {},
            .group = codes.size(-1)};
  Blocks blocks{.codes = {},
                .scale = scale.reshape({rows, -1}),
                .zero_point = {},
                .group = 2 * codes.size(2),
                .nibbles = true};
  const at::Tensor pairs = at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, -1);
  blocks.codes = pairs.flatten(1).narrow(1, 0, columns);
  if (!node.arg("zero_point").is_none()) blocks.zero_point = stored_argument(builder, node, "zero_point");
  return blocks;
}

/// Codes of 4 bits, two in a byte, in the order of their elements.
Codes packed(const at::Tensor& codes, int32_t type) {
  at::Tensor flat = codes.reshape({-1}).bitwise_and(15);
  if (flat.numel() % 2 != 0) flat = at::constant_pad_nd(flat, {0, 1});
  const at::Tensor pairs = flat.view({-1, 2});
  return {.type = type,
          .dims = codes.sizes().vec(),
          .bytes = pairs.select(1, 0).bitwise_or(pairs.select(1, 1).bitwise_left_shift(4))};
}

constexpr int64_t kSmallestFused = 16;  // of ONNX Runtime's blocks, which are powers of 2

/// Columns of a block of 8-bit codes whose row has one scale: what runtimes fuse and what divides the row, as OpenVINO wants it; the
/// whole row where nothing does.
int64_t block_of_bytes(int64_t columns) {
  for (int64_t block = 128; block >= kSmallestFused; block /= 2) {
    if (columns % block == 0) return block;
  }
  return columns;
}

/// The same for codes in groups, which become several blocks of equal scales where a row ends inside one.
int64_t block_of_groups(int64_t columns, int64_t group) {
  const int64_t divides = std::gcd(columns, group);
  return divides >= kSmallestFused ? divides : group;
}

/// [rows, columns] as it is, or turned.
at::Tensor placed(const at::Tensor& matrix, bool turned) {
  return turned ? matrix.t() : matrix;
}

/// A scale for each group.
CallArguments form_of_groups(Builder& builder, const Node& node, bool turned) {
  const bool nibbles = stored_argument(builder, node, "codes").scalar_type() == at::kByte;
  if (builder.opset() < kBlockOpset)
    refuse(node, "expected opset ", kBlockOpset, nibbles ? " for codes of 4 bits" : " for groups of 8 bits");
  const std::string form = turned ? "turned" : "rows";
  const auto name = [&](const char* argument) { return value_arg(node, argument)->producer->target(); };
  const auto codes = [&] {
    const Blocks blocks = blocks_of(builder, node);
    // Around 8, or signed: flipping the highest bit takes 8 away.
    const bool with_zero = blocks.zero_point.defined();
    const at::Tensor flat = with_zero ? blocks.codes : blocks.codes.bitwise_xor(8);
    return packed(placed(flat, turned), with_zero ? kUint4 : kInt4);
  };
  const int64_t columns = int_arg(node, "columns"), group = blocks_of(builder, node).group;
  const int64_t block = block_of_groups(columns, group);
  // One number for each block of what is one for each group.
  const auto rows_of = [&](const char* argument) {
    const at::Tensor numbers = stored_argument(builder, node, argument);
    const at::Tensor spread = numbers.reshape({numbers.size(0), -1}).repeat_interleave(group / block, 1);
    return placed(spread.narrow(1, 0, (columns - 1) / block + 1), turned);
  };
  const auto scale = [&] { return rows_of("scale"); };
  const Attributes attributes = {{"axis", int64_t{turned ? 0 : 1}}, {"block_size", block}};
  if (!nibbles) {
    const auto bytes = [&] { return placed(blocks_of(builder, node).codes, turned); };
    // ONNX Runtime refuses 8-bit blocks without zero points.
    return {{builder.derived(name("codes"), form, bytes), builder.derived(name("scale"), form, scale),
             builder.constant(at::zeros(scale().sizes(), at::kChar), name("codes") + ".zero_point")},
            attributes};
  }
  CallArguments made{
      {builder.derived(name("codes"), form, codes), builder.derived(name("scale"), form, scale)}, attributes};
  if (node.arg("zero_point").is_none()) return made;
  const auto zero = [&] { return packed(rows_of("zero_point"), kUint4); };
  made.inputs.push_back(builder.derived(name("zero_point"), form, zero));
  return made;
}

/// One scale a row. Runtimes unpack as they multiply only what is in blocks, so a row is given several, of equal scales.
CallArguments form_of_bytes(Builder& builder, const Node& node, bool turned) {
  const Blocks blocks = blocks_of(builder, node);
  const auto name = [&](const char* argument) { return value_arg(node, argument)->producer->target(); };
  if (!turned)
    return {{builder.in(node, "codes"),
             builder.derived(name("scale"), "list", [&] { return blocks.scale.flatten(); })},
            {{"axis", int64_t{0}}}};
  const std::string& codes = builder.derived(name("codes"), "turned", [&] { return blocks.codes.t(); });
  if (builder.opset() < kBlockOpset)
    return {{codes, builder.derived(name("scale"), "list", [&] { return blocks.scale.flatten(); })},
            {{"axis", int64_t{1}}}};
  const int64_t block = block_of_bytes(blocks.group);
  const std::vector<int64_t> sizes = {blocks.group / block, blocks.codes.size(0)};
  const auto repeated = [&] { return blocks.scale.t().expand(sizes); };
  // ONNX Runtime refuses 8-bit blocks without zero points.
  return {{codes, builder.derived(name("scale"), "blocks", repeated),
           builder.constant(at::zeros(sizes, at::kChar), name("codes") + ".zero_point")},
          {{"axis", int64_t{0}}, {"block_size", block}}};
}

/// Bytes with one scale a row.
bool are_bytes(const Builder& builder, const Node& node) {
  const at::Tensor codes = stored_argument(builder, node, "codes");
  return codes.scalar_type() == at::kChar && codes.dim() == 2;
}

CallArguments weight_form(Builder& builder, const Node& node, bool turned) {
  return are_bytes(builder, node) ? form_of_bytes(builder, node, turned)
                                  : form_of_groups(builder, node, turned);
}

/// Layers that read the codes themselves.
bool reads_codes(const Builder& builder, const Node& node, const Node& reader) {
  const Value* weight = node.output();
  if (reader.is("aten::linear")) return reader.arg("input").value != weight;
  return reader.is("aten::embedding") && are_bytes(builder, node);
}

void dequantize_weight(Builder& builder, const Node& node) {
  const std::vector<Node*> readers = builder.graph().users(node.output());
  if (std::ranges::all_of(readers, [&](const Node* reader) { return reads_codes(builder, node, *reader); }))
    return;
  CallArguments form = weight_form(builder, node, /*turned=*/false);
  builder.result(node, "DequantizeLinear", std::move(form.inputs), std::move(form.attributes));
}

/// Rows of codes and their scales, rather than rows of a table that was unpacked for them.
void embedding(Builder& builder, const Node& node) {
  const Value& weight = *value_arg(node, "weight");
  const std::string& ids = builder.in(node, "indices");
  const Node& codes = *weight.producer;
  const Attributes rows = {{"axis", int64_t{0}}};
  if (!codes.is("ulp::dequantize_weight") || !are_bytes(builder, codes))
    return builder.result(node, "Gather", {builder.name_of(&weight), ids}, rows);
  const CallArguments form = form_of_bytes(builder, codes, /*turned=*/false);
  const std::string picked = builder.call(node, "Gather", {form.inputs[0], ids}, rows);
  const std::string scale = builder.call(node, "Gather", {form.inputs[1], ids}, rows);
  builder.result(
      node, "Mul",
      {builder.cast(node, picked, at::kFloat), builder.call(node, "Unsqueeze", {scale, builder.ints({-1})})});
}

}  // namespace

std::string turned_blocks(Builder& builder, const Node& node) {
  CallArguments form = weight_form(builder, node, /*turned=*/true);
  return builder.call(node, "DequantizeLinear", std::move(form.inputs), std::move(form.attributes));
}

ConverterTable weight_converters() {
  static constexpr Converter kTable[] = {{"ulp::dequantize_weight", dequantize_weight},
                                         {"aten::embedding", embedding}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
