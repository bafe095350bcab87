#include "ulp/base/fields.h"
#include "ulp/lower/lower.h"

namespace ulp {

void LowerOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "precision", .help = "Arithmetic of the engine"}, precision);
  visitor({.name = "continued",
           .help = "Free dimension along which runs continue each other, to write texts: time",
           .keep_empty = false,
           .unset = "none"},
          continued);
}

}  // namespace ulp
