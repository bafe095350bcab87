// Weights that a network stores as [in, out], as GPT-2's are. A product of ONNX has all its weights so, and most are turned when they
// are written and when they are read: the metadata of a file names those that are not.
#pragma once

namespace ulp::exchange {

/// Key of the metadata; names of initializers, one a line.
inline constexpr const char* kStoredInOut = "ulp.stored_in_out";

}  // namespace ulp::exchange
