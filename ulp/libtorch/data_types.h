// LibTorch's element types and ours (formats/data_type.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "ulp/base/export.h"
#include "ulp/formats/data_type.h"

namespace ulp::libtorch {

/// The type of the same numbers; nothing for a type that has none here (complex numbers, 8-bit floats, ...).
ULP_API std::optional<DataType> data_type_of(c10::ScalarType type);
/// The type of the same numbers; nothing for a number that is no enumerator.
ULP_API std::optional<c10::ScalarType> scalar_type_of(DataType type);

}  // namespace ulp::libtorch
