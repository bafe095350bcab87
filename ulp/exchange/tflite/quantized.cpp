// Where numbers become codes and codes numbers. Layers from codes to codes are written by their own converters, which look ahead to
// the quantize behind them (Builder::ending_of); here is what is left.
#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;

void quantize(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "x");
  const Steps steps = builder.steps_of_quantize(node);
  const bool has_codes = builder.has_codes(&x);
  if (has_codes && builder.steps_of(&x) == steps) return builder.share(node.output(), &x);
  const Layout layout = builder.layout_of(&x);
  const Index from = builder.tensor_of(node, &x, layout, has_codes);
  if (layout == Layout::flattened) builder.flatten(node.output(), builder.flattened_channels(&x));
  builder.emit(schema::Operation::QUANTIZE, {from}, {builder.make_codes(node, node.output(), layout, steps)});
}

/// Nothing is written: what reads it finds the codes, or asks for numbers.
void dequantize(Builder& builder, const Node& node) {
  const Value& codes = *value_arg(node, "q");
  if (!builder.stored_codes(*node.output()).codes.defined()) builder.share(node.output(), &codes);
}

}  // namespace

ConverterTable quantize_converters() {
  static constexpr Converter kTable[] = {{"ulp::quantize", quantize}, {"ulp::dequantize", dequantize}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
