#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

bool is_learned(BinaryScale scale) {
  return scale != BinaryScale::none && scale != BinaryScale::mean;
}

void BinaryLayerOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "gradient",
         .help = "What stands for the derivative of the sign of an activation",
         .flag = "binary-gradient"},
        gradient);
  visit({.name = "scale", .help = "What the sums of a layer are multiplied by", .flag = "binary-scale"},
        scale);
  visit({.name = "activation_scale",
         .help = "Multiply by the mean of |x| over channels and window, too",
         .flag = "binary-activation-scale"},
        activation_scale);
  visit({.name = "padding", .help = "What stands outside of an image of signs", .flag = "binary-padding"},
        padding);
  visit({"ternary", "Weights of three values in place of two"}, ternary);
}

void BinaryOptions::visit_fields(FieldVisitor& visit) {
  layers.visit_fields(visit);
  visit({.name = "first", .help = "Make the first layer binary, too", .flag = "binary-first"}, first);
  visit({.name = "last", .help = "Make the last layer binary, too", .flag = "binary-last"}, last);
  visit(
      {.name = "shortcuts", .help = "Make convolutions of one pixel binary, too", .flag = "binary-shortcuts"},
      shortcuts);
  visit({.name = "weights_after",
         .help = "Share of the steps after which weights are binary; until then activations alone are",
         .min = 0,
         .max = 1,
         .flag = "binary-weights-after"},
        weights_after);
}

}  // namespace ulp::quant
