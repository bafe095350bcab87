#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

bool is_learned(BinaryScale scale) {
  return scale != BinaryScale::none && scale != BinaryScale::mean;
}

void BinaryLayerOptions::visit_fields(FieldVisitor& visit) {
  visit({"gradient", "What stands for the derivative of the sign of an activation"}, gradient);
  visit({"scale", "What the sums of a layer are multiplied by"}, scale);
  visit({"activation_scale", "Multiply by the mean of |x| over channels and window, too"}, activation_scale);
  visit({"padding", "What stands outside of an image of signs"}, padding);
  visit({"ternary", "Weights of three values in place of two"}, ternary);
}

void BinaryOptions::visit_fields(FieldVisitor& visit) {
  layers.visit_fields(visit);
  visit({"first", "Make the first layer binary, too"}, first);
  visit({"last", "Make the last layer binary, too"}, last);
  visit({"shortcuts", "Make convolutions of one pixel binary, too"}, shortcuts);
  visit({"weights_after", "Share of the steps after which weights are binary", 0, 1}, weights_after);
}

}  // namespace ulp::quant
