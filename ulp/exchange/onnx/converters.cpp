#include "ulp/exchange/onnx/converters.h"

#include <vector>

namespace ulp::exchange::onnx {

// The files that have a table, <name>_converters().
#define ULP_CONVERTERS(X) \
  X(layer)                \
  X(linear)               \
  X(weight)               \
  X(dynamic)              \
  X(norm)                 \
  X(pool)                 \
  X(elementwise)          \
  X(arithmetic)           \
  X(reduce)               \
  X(shape)                \
  X(piece)                \
  X(image)                \
  X(column)               \
  X(resize)               \
  X(fill)                 \
  X(text)                 \
  X(recurrent)            \
  X(spelled)              \
  X(ordered)              \
  X(quantize)

#define ULP_DECLARE(name) ConverterTable name##_converters();
ULP_CONVERTERS(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

const std::vector<Converter>& all_converters() {
  static const std::vector<Converter> all = [] {
    std::vector<Converter> rows;
#define ULP_GATHER(name) \
  for (const Converter& row : name##_converters()) rows.push_back(row);
    ULP_CONVERTERS(ULP_GATHER)
#undef ULP_GATHER
#undef ULP_CONVERTERS
    return rows;
  }();
  return all;
}

}  // namespace

ConvertFunction find_converter(const graph::Node& node) {
  return find_row(all_converters(), node);
}

std::vector<std::string_view> converter_names() {
  return row_names(all_converters());
}

}  // namespace ulp::exchange::onnx
