#include "ulp/base/dynamic_dimension.h"

#include "ulp/base/error.h"

namespace ulp {

void DynamicDimension::check(int64_t size, const char* where) const {
  if (size >= min && size <= max && size % multiple == 0) return;
  const std::string multiples = multiple == 1 ? "" : " and a multiple of " + std::to_string(multiple);
  fail(ErrorCode::bad_shape, where, "expected '", name, "' to be ", min, " to ", max, multiples, ", got ",
       size);
}

std::string BatchRange::text() const {
  if (max == kAny) return std::to_string(min) + " or more";
  return std::to_string(min) + " to " + std::to_string(max);
}

void BatchRange::check(int64_t batch, const char* where) const {
  if (contains(batch)) return;
  fail(ErrorCode::bad_shape, where, "expected a batch of ", text(), ", got ", batch);
}

}  // namespace ulp
