// Writes through views, as x.slice(1, 0, 2).mul_(3): in a graph, values do not share memory, so x is made
// anew.
#pragma once

#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// Which memory a tensor lies in.
const void* memory_key(const at::Tensor& tensor);

/// Behind each call that writes to a view of this memory, adds the calls that give what is viewed its new
/// value: slice_scatter for slice, select_scatter for select, transpose for transpose and so on, from the
/// innermost view outwards. False, with the trace as it was, where a written view was made otherwise.
bool write_back_views(Trace& trace, const void* memory);

}  // namespace ulp::graph
