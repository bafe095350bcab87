// Weights in codes with minima (GGUF's Q4_K) for files whose codes have zero points alone.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Each weight of ulp::dequantize_weight with a minimum becomes a stored one in f32 with the same bits, in place; codes, scales and minima
/// remain as attributes that nobody reads. Throws ulp::Error, whose text `where` begins, for one that is not stored.
void store_minima(graph::Graph& graph, const char* where);

}  // namespace ulp::exchange
