#include "ulp/lora/frozen_weight.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/lora/nf4.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::lora {

namespace {

constexpr const char* kFrozenWeightWhere = "lora.FrozenWeight";
constexpr int64_t kWeightGrain = 1 << 14;

quant::WeightOnlyRecipe recipe_of(LoraBase format, const LoraOptions& options) {
  return {.bits = format == LoraBase::int8 ? 8 : 4, .group = options.group};
}

Nf4Tensor nf4_of(const FrozenWeight& weight) {
  Nf4Tensor codes{.codes = weight.parts[0], .absmax = weight.parts[1]};
  if (weight.parts.size() > 2) {
    codes.scale_absmax = weight.parts[2];
    codes.offset = weight.parts[3];
  }
  return codes;
}

int64_t groups_for(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

void expect_part(const FrozenWeight& weight, size_t part, at::ScalarType type, at::IntArrayRef sizes) {
  const at::Tensor& given = weight.parts[part];
  if (given.defined() && given.scalar_type() == type && given.sizes() == sizes && given.is_contiguous())
    return;
  fail(kFrozenWeightWhere, "expected part ", part, " of a weight in ", enum_name(weight.format), " to be ",
       type, ' ', sizes, ", got ", given.defined() ? given.scalar_type() : at::ScalarType::Undefined, ' ',
       given.defined() ? given.sizes() : at::IntArrayRef());
}

void check_nf4(const FrozenWeight& weight) {
  const int64_t size = weight.rows * weight.columns, blocks = groups_for(size, kNf4Block);
  const bool coded = weight.parts.size() == 4;
  expect_part(weight, 0, at::kByte, {(size + 1) / 2});
  expect_part(weight, 1, coded ? at::kByte : at::kFloat, {blocks});
  if (!coded) return;
  expect_part(weight, 2, at::kFloat, {groups_for(blocks, kNf4ScaleBlock)});
  expect_part(weight, 3, at::kFloat, {1});
}

void check_int4(const FrozenWeight& weight) {
  const at::Tensor& codes = weight.parts[0];
  const int64_t size = codes.defined() && codes.dim() == 3 ? 2 * codes.size(2) : 0;
  if (size < 2) fail(kFrozenWeightWhere, "expected int4 codes [rows, groups, size / 2]");
  const int64_t groups = groups_for(weight.columns, size);
  expect_part(weight, 0, at::kByte, {weight.rows, groups, size / 2});
  expect_part(weight, 1, at::kFloat, {weight.rows, groups});
}

/// Values of rows in float32, one row after another.
class RowDecoder {
 public:
  explicit RowDecoder(const FrozenWeight& weight)
      : weight_(weight), columns_(weight.columns), codes_(weight.parts[0].const_data_ptr()) {
    scales_ = weight.format == LoraBase::nf4 ? nf4_scales(nf4_of(weight)) : weight.parts[1];
    scale_ = scales_.const_data_ptr<float>();
  }

  void operator()(int64_t row, float* out) const {
    switch (weight_.format) {
      case LoraBase::int8:
        return int8_row(row, out);
      case LoraBase::int4:
        return int4_row(row, out);
      default:
        return nf4_row(row, out);
    }
  }

 private:
  void int8_row(int64_t row, float* out) const {
    const auto* codes = static_cast<const int8_t*>(codes_) + row * columns_;
    const float scale = scale_[row];
    for (int64_t i = 0; i < columns_; ++i) out[i] = static_cast<float>(codes[i]) * scale;
  }
  /// The 16 values that codes of 4 bits have beside one scale.
  using Values = std::array<float, 16>;

  void int4_row(int64_t row, float* out) const {
    constexpr int kZero = 8;
    const int64_t groups = weight_.parts[0].size(1), size = 2 * weight_.parts[0].size(2);
    const auto* codes = static_cast<const uint8_t*>(codes_) + row * groups * (size / 2);
    for (int64_t group = 0; group < groups; ++group) {
      Values values;
      for (int code = 0; code < 16; ++code)
        values[code] = static_cast<float>(code - kZero) * scale_[row * groups + group];
      const int64_t from = group * size, to = std::min(columns_, from + size);
      for (int64_t i = from; i + 1 < to; i += 2) {
        out[i] = values[codes[i / 2] & 15];
        out[i + 1] = values[codes[i / 2] >> 4];
      }
      if (to % 2 != 0) out[to - 1] = values[codes[(to - 1) / 2] & 15];
    }
  }
  /// Rows may begin and end inside a block, and inside a byte.
  void nf4_row(int64_t row, float* out) const {
    const auto* codes = static_cast<const uint8_t*>(codes_);
    const int64_t first = row * columns_, last = first + columns_;
    for (int64_t at = first; at < last;) {
      const int64_t end = std::min(last, (at / kNf4Block + 1) * kNf4Block);
      Values values = nf4_table();
      for (float& value : values) value *= scale_[at / kNf4Block];
      if (at % 2 != 0) {
        out[at - first] = values[codes[at / 2] & 15];
        ++at;
      }
      for (; at + 1 < end; at += 2) {
        out[at - first] = values[codes[at / 2] >> 4];
        out[at + 1 - first] = values[codes[at / 2] & 15];
      }
      if (at < end) {
        out[at - first] = values[codes[at / 2] >> 4];
        ++at;
      }
    }
  }

  const FrozenWeight& weight_;
  int64_t columns_;
  const void* codes_;
  at::Tensor scales_;
  const float* scale_;
};

template <typename Number>
void decode_rows(const FrozenWeight& weight, Number* out) {
  const RowDecoder decode(weight);
  const int64_t columns = weight.columns, grain = std::max<int64_t>(1, kWeightGrain / columns);
  libtorch::parallel_for(0, weight.rows, grain, [&](int64_t from, int64_t to) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = from; r < to; ++r) {
      decode(r, row.data());
      for (int64_t i = 0; i < columns; ++i) out[r * columns + i] = static_cast<Number>(row[i]);
    }
  });
}

/// By LibTorch's operators, for devices without a loop of ours.
at::Tensor dequantize_generic(const FrozenWeight& weight) {
  if (weight.format != LoraBase::nf4)
    return quant::dequantize_weight(weight.parts[0], weight.parts[1], std::nullopt, weight.columns);
  const int64_t size = weight.rows * weight.columns;
  const at::Tensor& codes = weight.parts[0];
  const at::Tensor table =
      at::from_blob(const_cast<float*>(nf4_table().data()), {16}, at::kFloat).to(codes.device());
  const at::Tensor each = at::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, -1).flatten();
  const at::Tensor scales = nf4_scales(nf4_of(weight)).repeat_interleave(kNf4Block).narrow(0, 0, size);
  return table.index_select(0, each.narrow(0, 0, size).to(at::kInt))
      .mul_(scales)
      .view({weight.rows, weight.columns});
}

}  // namespace

void FrozenWeight::check() const {
  const size_t wanted = format == LoraBase::bf16 ? 1 : 2;
  const bool coded_scales = format == LoraBase::nf4 && parts.size() == 4;
  int64_t size = 0;
  if (format == LoraBase::fp32 || rows < 1 || columns < 1 || (parts.size() != wanted && !coded_scales) ||
      __builtin_mul_overflow(rows, columns, &size))
    fail(kFrozenWeightWhere, "expected the parts of a matrix in bf16, int8, int4 or nf4, got ", parts.size(),
         " parts of ", enum_name(format), " with ", rows, " rows of ", columns);
  switch (format) {
    case LoraBase::bf16:
      return expect_part(*this, 0, at::kBFloat16, {rows, columns});
    case LoraBase::int8:
      expect_part(*this, 0, at::kChar, {rows, columns});
      return expect_part(*this, 1, at::kFloat, {rows});
    case LoraBase::int4:
      return check_int4(*this);
    default:
      return check_nf4(*this);
  }
}

int64_t FrozenWeight::bytes() const {
  int64_t sum = 0;
  for (const at::Tensor& part : parts) sum += static_cast<int64_t>(part.nbytes());
  return sum;
}

FrozenWeight freeze_weight(const std::string& name, const at::Tensor& values, LoraBase format,
                           const LoraOptions& options) {
  const at::NoGradGuard no_grad;
  FrozenWeight made{.format = format, .parts = {}, .rows = values.size(0), .columns = values.size(1)};
  if (format == LoraBase::bf16) {
    made.parts = {values.detach().to(at::kBFloat16).contiguous()};
    return made;
  }
  if (!at::isfinite(values).all().item<bool>())
    fail("lora.freeze_weight", "expected finite weights in '", name, "', got NaN or infinite values");
  const at::Tensor matrix = values.detach().to(at::kFloat).contiguous();
  if (format == LoraBase::nf4) {
    const Nf4Tensor codes = quantize_nf4(matrix, options.double_quant);
    made.parts = {codes.codes, codes.absmax};
    if (codes.offset) made.parts.insert(made.parts.end(), {*codes.scale_absmax, *codes.offset});
    for (at::Tensor& part : made.parts) part = part.to(values.device());
    return made;
  }
  const quant::StoredQuantizedWeight codes = quant::rounded_codes(name, matrix, recipe_of(format, options));
  made.parts = {codes.codes.contiguous(), codes.scale.contiguous()};
  return made;
}

at::Tensor dequantize(const FrozenWeight& weight, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (weight.format == LoraBase::bf16) return weight.parts[0].to(dtype);
  if (!weight.parts[0].is_cpu()) return dequantize_generic(weight).to(dtype);
  const bool narrow = dtype == at::kBFloat16;
  const at::Tensor made = at::empty({weight.rows, weight.columns}, narrow ? at::kBFloat16 : at::kFloat);
  if (narrow) {
    decode_rows(weight, made.mutable_data_ptr<at::BFloat16>());
  } else {
    decode_rows(weight, made.mutable_data_ptr<float>());
  }
  return made.to(dtype);
}

}  // namespace ulp::lora
