#include "ulp/base/free_dimension.h"

#include "ulp/base/error.h"

namespace ulp {

void FreeDimension::check(int64_t size, const char* where) const {
  if (size >= min && size <= max && size % multiple == 0) return;
  const std::string multiples = multiple == 1 ? "" : " and a multiple of " + std::to_string(multiple);
  fail(ErrorCode::bad_shape, where, "expected '", name, "' to be ", min, " to ", max, multiples, ", got ",
       size);
}

}  // namespace ulp
