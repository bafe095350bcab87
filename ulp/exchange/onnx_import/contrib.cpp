// Operators of ONNX Runtime's own domain, com.microsoft.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/kept_name.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Kind = graph::Attribute::Kind;

/// A matrix of codes [rows, blocks, bytes of a block], with the steps of its blocks.
struct BlockMatrix {
  Tensor bytes, scale, zero_point;  ///< the latter two [rows, blocks]; undefined: the middle of the codes
  int64_t rows = 0, columns = 0, bits = 0, size = 0, blocks = 0;
};

Tensor stored_input(Call& call, size_t i) {
  const Tensor found = call.run().store().find(call.name(i));
  if (!found.defined()) call.refuse("expected input ", i, " to be a tensor of the file");
  return found;
}

/// Codes of a row, the lower bits of a byte first.
Tensor unpacked_rows(const Tensor& bytes, int64_t bits, int64_t count) {
  std::vector<Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits)
    parts.push_back(bytes.bitwise_right_shift(shift).bitwise_and((1 << bits) - 1));
  return torch::stack(parts, -1).flatten(-2).narrow(-1, 0, count).contiguous();
}

BlockMatrix block_matrix(Call& call) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  BlockMatrix made{.bytes = stored_input(call, 1),
                   .scale = stored_input(call, 2),
                   .zero_point = {},
                   .rows = call.attribute("N", int64_t{0}),
                   .columns = call.attribute("K", int64_t{0}),
                   .bits = call.attribute("bits", int64_t{4}),
                   .size = call.attribute("block_size", int64_t{0})};
  if (call.has(4)) call.refuse("expected columns in their order, got g_idx");
  const bool known = (made.bits == 2 || made.bits == 4 || made.bits == 8) && made.size >= 8 &&
                     made.rows > 0 && made.columns > 0 && made.size <= int64_t{1} << 30;
  if (!known) call.refuse("expected codes of 2, 4 or 8 bits in blocks of 8 or more");
  made.blocks = (made.columns - 1) / made.size + 1;
  const double bytes = static_cast<double>(made.rows) * static_cast<double>(made.blocks) *
                       static_cast<double>(made.size * made.bits / 8);
  const bool fits = made.bytes.scalar_type() == at::kByte && made.size * made.bits % 8 == 0 &&
                    static_cast<double>(made.bytes.numel()) == bytes &&
                    made.scale.numel() == made.rows * made.blocks &&
                    at::isFloatingType(made.scale.scalar_type());
  if (!fits)
    call.refuse("expected codes of ", made.rows, " x ", made.blocks, " blocks and their scales, got ",
                made.bytes.sizes(), " and ", made.scale.sizes());
  made.bytes = made.bytes.reshape({made.rows, made.blocks, made.size * made.bits / 8});
  made.scale = made.scale.to(at::kFloat).reshape({made.rows, made.blocks}).contiguous();
  if (!call.has(3)) return made;
  const Tensor zero = stored_input(call, 3);
  const bool packed = zero.scalar_type() == at::kByte;
  const int64_t each = packed ? (made.blocks * made.bits + 7) / 8 : made.blocks;
  if (zero.numel() != made.rows * each || !(packed || at::isFloatingType(zero.scalar_type())))
    call.refuse("expected a zero point for each block, got ", zero.sizes());
  const Tensor by_row = zero.reshape({made.rows, each});
  made.zero_point = packed ? unpacked_rows(by_row, made.bits, made.blocks) : by_row.to(at::kFloat);
  return made;
}

/// Less the middle of the codes, which is their zero point where the file has none: int16 [rows, blocks,
/// size].
Tensor codes_around_middle(const BlockMatrix& matrix) {
  const int64_t middle = int64_t{1} << (matrix.bits - 1);
  return unpacked_rows(matrix.bytes, matrix.bits, matrix.size).to(at::kShort) - middle;
}

Tensor float_values(const BlockMatrix& matrix) {
  const int64_t middle = int64_t{1} << (matrix.bits - 1);
  Tensor values = codes_around_middle(matrix).to(at::kFloat);
  if (matrix.zero_point.defined()) values = values - (matrix.zero_point.to(at::kFloat) - middle).unsqueeze(2);
  const Tensor all = (values * matrix.scale.unsqueeze(2)).flatten(1);
  return all.narrow(1, 0, matrix.columns).contiguous();
}

/// The matrix as ulp::dequantize_weight where that has the form, else as floats that train.
Tensor nbits_weight(Call& call) {
  const BlockMatrix matrix = block_matrix(call);
  Store& store = call.run().store();
  const std::string name = kept_name(call, call.node(), 1, call.name(1), /*ending=*/"", /*first=*/1);
  const bool codes_stay = store.options().qdq == QdqForm::codes;
  const bool whole = !matrix.zero_point.defined() || matrix.zero_point.scalar_type() == at::kByte;
  const auto buffer = [&](const std::string& end, const auto& make) {
    return store.attribute(name + end, Kind::buffer, make);
  };
  const auto scale = [&] { return buffer(".scale", [&] { return matrix.scale; }); };
  if (codes_stay && matrix.bits == 4 && whole) {
    const Tensor codes = buffer(".uint4", [&] { return matrix.bytes.contiguous(); });
    std::optional<Tensor> zero;
    if (matrix.zero_point.defined()) zero = buffer(".zero_point", [&] { return matrix.zero_point; });
    return quant::dequantize_weight(codes, scale(), zero, matrix.columns);
  }
  if (codes_stay && matrix.bits == 8 && !matrix.zero_point.defined()) {
    const auto make = [&] { return codes_around_middle(matrix).to(at::kChar).contiguous(); };
    return quant::dequantize_weight(buffer(".int8", make), scale(), std::nullopt, matrix.columns);
  }
  return store.attribute(name + ".weight", Kind::parameter, [&] { return float_values(matrix); });
}

void matmul_nbits(Call& call) {
  const Tensor x = call.x(0);
  const Tensor weight = nbits_weight(call);
  if (x.dim() < 1 || x.size(-1) != weight.size(1))
    call.refuse("expected ", weight.size(1), " features, got ", x.sizes());
  call.set(
      at::linear(x, x.scalar_type() == at::kFloat ? weight : weight.to(x.scalar_type()), call.optional(5)));
}

/// The matrix and the result.
double nbits_bound(Call& call) {
  const auto rows = static_cast<double>(std::max<int64_t>(call.attribute("N", int64_t{0}), 1)),
             columns = static_cast<double>(std::max<int64_t>(call.attribute("K", int64_t{0}), 1));
  return rows * columns + first_input(call) / columns * rows;
}

}  // namespace

ConverterTable contrib_table() {
  static constexpr Converter kTable[] = {{"MatMulNBits", matmul_nbits, nbits_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
