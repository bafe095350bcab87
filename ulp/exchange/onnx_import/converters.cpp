#include "ulp/exchange/onnx_import/converters.h"

#include <algorithm>
#include <map>

#include "ulp/exchange/onnx_import/rewrite.h"

namespace ulp::exchange::onnx_import {

// The files that have a table, <name>_table().
#define ULP_TABLES(X) \
  X(layer)            \
  X(norm)             \
  X(pool)             \
  X(elementwise)      \
  X(arithmetic)       \
  X(reduce)           \
  X(shape)            \
  X(piece)            \
  X(image)            \
  X(resize)           \
  X(fill)             \
  X(recurrent)        \
  X(integer)          \
  X(attention)        \
  X(contrib)          \
  X(quantize)         \
  X(loss)             \
  X(cast)             \
  X(bits)             \
  X(fourier)          \
  X(sequence)         \
  X(state)            \
  X(column)           \
  X(deformed)         \
  X(unpool)           \
  X(signal_window)

#define ULP_DECLARE(name) ConverterTable name##_table();
ULP_TABLES(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

const std::map<std::string_view, Converter>& all_converters() {
  static const std::map<std::string_view, Converter> all = [] {
    std::map<std::string_view, Converter> rows;
#define ULP_GATHER(name) \
  for (const Converter& row : name##_table()) rows.emplace(row.op, row);
    ULP_TABLES(ULP_GATHER)
#undef ULP_GATHER
#undef ULP_TABLES
    return rows;
  }();
  return all;
}

/// Operators of ONNX Runtime's domain, of which other ones have names of the standard and another meaning.
constexpr std::string_view kOfRuntime[] = {
    "QuantizeLinear", "DequantizeLinear", "MatMulNBits", "Gelu", "Pad", "Range", "Trilu"};

bool is_of_domain(const FileNode& node) {
  if (node.domain == "com.microsoft") return std::ranges::find(kOfRuntime, node.op) != std::end(kOfRuntime);
  if (node.op == "MatMulNBits") return false;
  return node.domain == (node.op == "LinearDynamic" ? kOwnDomain : "");
}

}  // namespace

const Converter* find_converter(const FileNode& node) {
  if (!is_of_domain(node)) return nullptr;
  const auto found = all_converters().find(node.op);
  return found == all_converters().end() ? nullptr : &found->second;
}

std::vector<std::string_view> converter_names() {
  std::vector<std::string_view> names;
  for (const auto& [op, function] : all_converters()) names.push_back(op);
  return names;
}

}  // namespace ulp::exchange::onnx_import
