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

bool has_form(const graph::Node& node) {
  const auto is_usual = [&](const char* argument, double usual) {
    return !has_arg(node, argument) || number_arg(node, argument) == usual;
  };
  if (node.is("aten::elu")) return is_usual("scale", 1) && is_usual("input_scale", 1);
  constexpr double kRounded = 15;  // from there on the linear part of softplus is its rounding
  if (node.is("aten::softplus")) return is_usual("beta", 1) && number_arg(node, "threshold") >= kRounded;
  // MIL's floor_div rounds the quotient, LibTorch's divides what is a multiple.
  const bool floats = at::isFloatingType(type_of(*node.output()));
  if (node.is("aten::floor_divide")) return !floats;
  if (node.is("aten::div")) {
    if (!has_arg(node, "rounding_mode") || node.arg("rounding_mode").is_none()) return true;
    return !floats && text_arg(node, "rounding_mode") == "floor";
  }
  return find_converter(node) != nullptr;
}

std::vector<std::string_view> converter_names() {
  return row_names(all_converters());
}

}  // namespace ulp::exchange::coreml
