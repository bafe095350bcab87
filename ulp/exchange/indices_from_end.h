// Selections whose indices may be below 0 and then count from the end, as those of x[index] in PyTorch. Of what this library writes as
// a Gather most are none: embeddings and index_select know no places below 0. The metadata of a file names those that are.
#pragma once

namespace ulp::exchange {

/// Key of the metadata; names of results of Gather, one a line.
inline constexpr const char* kIndicesFromEnd = "ulp.indices_from_end";

}  // namespace ulp::exchange
