// Attributes of lstm and gru.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The direction of a recurrent layer, and how its input is quantized.
struct RecurrentAttributes {
  bool per_tensor = false;  ///< i8 weights: one quantizer for the whole batch, else one a row
  bool reverse = false;     ///< from the last step of time to the first
  bool last_c = false;      ///< lstm: one more step behind the last one holds c

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "per_tensor"}, per_tensor);
    visit({.name = "reverse"}, reverse);
    visit({.name = "last_c"}, last_c);
  }
  bool operator==(const RecurrentAttributes&) const = default;
};

}  // namespace ulp::runtime
