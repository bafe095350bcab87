#include "ulp/exchange/onnx_import/converters.h"

#include <map>

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
  X(fill)             \
  X(recurrent)        \
  X(quantize)

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

}  // namespace

const Converter* find_converter(const FileNode& node) {
  // ONNX Runtime's quantizer writes the operators of codes in its own domain, too.
  if (!node.domain.empty() && node.domain != "com.microsoft") return nullptr;
  const auto found = all_converters().find(node.op);
  return found == all_converters().end() ? nullptr : &found->second;
}

std::string converter_names() {
  std::string text;
  for (const auto& [op, function] : all_converters()) text.append(text.empty() ? "" : ", ").append(op);
  return text;
}

}  // namespace ulp::exchange::onnx_import
