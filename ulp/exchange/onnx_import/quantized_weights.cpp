// Weights alone in codes of 8 bits, with a scale a channel, as other programs write them.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ulp/exchange/onnx_import/movers.h"
#include "ulp/exchange/onnx_import/quantized.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Kind = graph::Attribute::Kind;

/// Whether a layer behind this op still reads codes.
bool passes_codes(std::string_view op) {
  constexpr std::array<std::string_view, 4> kKeepCodes = {"Relu", "MaxPool", "Dropout", "Concat"};
  return is_mover(op) || std::ranges::find(kKeepCodes, op) != kKeepCodes.end();
}

/// Whether a value is dequantized from codes that follow the inputs.
bool comes_from_codes(const Call& call, std::string value) {
  constexpr int kFurthest = 16;
  for (int step = 0; step < kFurthest; ++step) {
    const FileNode* maker = call.analysis().maker(value);
    if (maker == nullptr || maker->inputs.empty()) return false;
    value = maker->inputs[0];
    if (maker->op == "DequantizeLinear") return call.analysis().follows_inputs(value);
    if (!passes_codes(maker->op)) return false;
  }
  return false;
}

bool turns(const Call& call, const FileNode& node, const char* name) {
  return Call(call.run(), node, Call::As::known).attribute(name, int64_t{0}) != 0;
}

/// How a weight is read: as [in, out], as [out, in], or as a table of rows.
enum class WeightUse : uint8_t { in_out, out_in, table, other };

WeightUse use_in(const Call& call, const Use& use) {
  const FileNode& node = *use.node;
  const bool gemm = node.op == "Gemm";
  if (node.op == "Gather")
    return use.input == 0 && !turns(call, node, "axis") ? WeightUse::table : WeightUse::other;
  if (node.op == "Transpose") {
    const Call inner(call.run(), node, Call::As::known);
    const std::vector<int64_t> turned = {1, 0};
    const std::vector<Use>& readers = call.analysis().uses(node.outputs.at(0));
    const bool plain = inner.attribute("perm", turned) == turned && !readers.empty() &&
                       !call.analysis().is_result(node.outputs[0]);
    const bool products =
        plain && std::ranges::all_of(readers, [&](const Use& reader) {
          return reader.node->op != "Transpose" && use_in(call, reader) == WeightUse::in_out;
        });
    return products ? WeightUse::out_in : WeightUse::other;
  }
  if ((node.op != "MatMul" && !gemm) || use.input != 1) return WeightUse::other;
  if (comes_from_codes(call, node.inputs.at(0))) return WeightUse::other;
  return gemm && turns(call, node, "transB") ? WeightUse::out_in : WeightUse::in_out;
}

WeightUse use_of(const Call& call, const std::string& value) {
  const std::vector<Use>& uses = call.analysis().uses(value);
  if (uses.empty() || call.analysis().is_result(value)) return WeightUse::other;
  const WeightUse first = use_in(call, uses[0]);
  const bool same = std::ranges::all_of(uses, [&](const Use& use) { return use_in(call, use) == first; });
  return same ? first : WeightUse::other;
}

/// Scale and zero point of each row, f32 and int32.
struct RowSteps {
  Tensor scale, zero_point;
};

std::optional<RowSteps> steps_of_rows(const Call& call, const FileNode& node, int64_t rows, bool transposed) {
  const Store& store = call.run().store();
  const auto stored = [&](size_t i) {
    return i < node.inputs.size() && !node.inputs[i].empty() ? store.find(node.inputs[i]) : Tensor();
  };
  const Tensor scale = stored(1), zero = stored(2);
  const bool has_zero = node.inputs.size() > 2 && !node.inputs[2].empty();
  if (!scale.defined() || scale.dim() > 1 || scale.scalar_type() != at::kFloat || has_zero != zero.defined())
    return std::nullopt;
  const Call inner(call.run(), node, Call::As::known);
  const int64_t axis = inner.dim(inner.attribute("axis", int64_t{1}), 2);
  const auto fits = [&](const Tensor& one) { return one.numel() == 1 || one.numel() == rows; };
  if (!fits(scale) || (has_zero && !fits(zero)) || (scale.numel() > 1 && axis != (transposed ? 1 : 0)))
    return std::nullopt;
  const auto each = [&](const Tensor& one) { return one.reshape({-1}).expand({rows}).contiguous(); };
  return RowSteps{.scale = each(scale),
                  .zero_point = each(has_zero ? zero.to(at::kInt) : at::zeros({1}, at::kInt))};
}

/// The parts of a weight in codes, as it is kept.
struct RowCodes {
  Tensor codes, scale, offset;  ///< s8 [out, in], f32 [out], f32 [out]; the latter undefined: 0
};

std::optional<RowCodes> row_codes(const Call& call, const FileNode& node, const Tensor& codes,
                                  WeightUse use) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  const bool transposed = use == WeightUse::in_out, is_unsigned = codes.scalar_type() == at::kByte;
  const Tensor rows = (transposed ? codes.t() : codes).to(at::kInt);
  const auto steps = steps_of_rows(call, node, rows.size(0), transposed);
  if (!steps) return std::nullopt;
  const Tensor centered = rows - steps->zero_point.unsqueeze(1);
  if (centered.min().item<int>() >= -128 && centered.max().item<int>() <= 127)
    return RowCodes{.codes = centered.to(at::kChar).contiguous(), .scale = steps->scale, .offset = {}};
  if (use == WeightUse::table) return std::nullopt;
  const int moved = is_unsigned ? 128 : 0;
  return RowCodes{.codes = (rows - moved).to(at::kChar).contiguous(),
                  .scale = steps->scale,
                  .offset = (moved - steps->zero_point).to(at::kFloat) * steps->scale};
}

/// What the buffers are called.
struct BufferNames {
  std::string codes, scale, offset;
};

/// A scale that fits and that nobody else reads keeps its name.
BufferNames buffer_names(const Call& call, const FileNode& node, int64_t rows) {
  const std::string &codes = node.inputs.at(0), &scale = node.inputs.at(1);
  const bool own = call.run().store().find(scale).numel() == rows && call.analysis().uses(scale).size() == 1;
  return {.codes = codes, .scale = own ? scale : codes + ".scale", .offset = codes + ".offset"};
}

void keep_buffers(const Call& call, const FileNode& node, const RowCodes& parts) {
  Store& store = call.run().store();
  const BufferNames names = buffer_names(call, node, parts.codes.size(0));
  const auto keep = [&](const std::string& name, const Tensor& tensor) {
    if (tensor.defined()) store.attribute(name, Kind::buffer, [&] { return tensor; });
  };
  keep(names.codes, parts.codes);
  keep(names.scale, parts.scale);
  keep(names.offset, parts.offset);
}

}  // namespace

std::optional<CodedWeight> coded_weight(Call& call, const FileNode& node) {
  Store& store = call.run().store();
  const std::string& name = node.inputs.at(0);
  const Tensor codes = store.is_initializer(name) ? store.find(name) : Tensor();
  const bool is_code = codes.defined() && codes.dim() == 2 && codes.numel() > 0 &&
                       (codes.scalar_type() == at::kChar || codes.scalar_type() == at::kByte);
  if (!is_code || store.options().qdq == QdqForm::fake || call.analysis().uses(name).size() != 1 ||
      node.find("block_size") != nullptr)
    return std::nullopt;
  const WeightUse use = use_of(call, node.outputs.at(0));
  if (use == WeightUse::other) return std::nullopt;
  // What the first run finds holds for all.
  const auto known = store.coded_weights.find(&node);
  if (known == store.coded_weights.end()) {
    const auto parts = row_codes(call, node, codes, use);
    store.coded_weights[&node] = parts.has_value();
    if (parts) keep_buffers(call, node, *parts);
  }
  if (!store.coded_weights.at(&node)) return std::nullopt;
  const BufferNames names = buffer_names(call, node, codes.size(use == WeightUse::in_out ? 1 : 0));
  return CodedWeight{
      .weight = quant::dequantize_weight(store.kept(names.codes), store.kept(names.scale), std::nullopt,
                                         codes.size(use == WeightUse::in_out ? 0 : 1)),
      .offset = store.kept(names.offset),
      .transposed = use == WeightUse::in_out};
}

}  // namespace ulp::exchange::onnx_import
