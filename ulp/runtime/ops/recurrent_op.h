// Attributes of lstm and gru.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The direction of a recurrent layer, and how its input is quantized.
struct RecurrentAttributes {
  bool per_tensor = false;  ///< i8 weights: one quantizer for the whole batch, else one a row
  bool reverse = false;     ///< from the last step of time to the first

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "per_tensor"}, per_tensor);
    visit({.name = "reverse"}, reverse);
  }
  bool operator==(const RecurrentAttributes&) const = default;
};

}  // namespace ulp::runtime
