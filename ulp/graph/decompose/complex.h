// Complex numbers as pairs of real ones.
#pragma once

#include "ulp/graph/passes/pass.h"

namespace ulp::graph {

/// Writes calls on complex numbers, Fourier transforms among them, as calls on their real and imaginary
/// parts. All of a graph or nothing: inputs and results that are complex, and calls that it does not know,
/// are near misses.
PassReport split_complex(Graph& graph);

}  // namespace ulp::graph
