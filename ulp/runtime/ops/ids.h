// Integer ids as an op reads them.
#pragma once

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime {

/// Element i of an i32 or i64 tensor.
inline int64_t id_at(DataType type, const void* ids, int64_t i) {
  return type == DataType::i64 ? static_cast<const int64_t*>(ids)[i] : static_cast<const int32_t*>(ids)[i];
}

}  // namespace ulp::runtime
