// Batch sizes that a network computes, where these have bounds. A dimension of an ONNX file has a name and no
// bounds: the metadata of a file says them.
#pragma once

#include <map>
#include <string>

#include "ulp/base/dynamic_dimension.h"

namespace ulp::exchange {

/// The bounds as metadata, "ulp.batch_range": "4 8", or "4" without a largest size. Nothing for a range
/// without bounds.
void store_batch_range(const BatchRange& range, std::map<std::string, std::string>& metadata);
/// The range that the metadata say, without bounds where they say none. Throws FileError for anything but one
/// or two sizes in order.
BatchRange stored_batch_range(const std::map<std::string, std::string>& metadata, const char* where);

}  // namespace ulp::exchange
