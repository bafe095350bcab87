#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

// The files that have a table, <name>_converters().
#define ULP_CONVERTERS(X) \
  X(layer)                \
  X(norm)                 \
  X(pool)                 \
  X(elementwise)          \
  X(arithmetic)           \
  X(reduce)               \
  X(shape)                \
  X(piece)                \
  X(image)                \
  X(ordered)              \
  X(resize)               \
  X(text)

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

}  // namespace ulp::exchange::coreml
