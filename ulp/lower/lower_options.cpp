#include "ulp/base/fields.h"
#include "ulp/lower/lower.h"

namespace ulp {

void LowerOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "precision", .help = "Arithmetic of the engine"}, precision);
}

}  // namespace ulp
