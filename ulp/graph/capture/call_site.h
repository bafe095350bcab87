// Where in the model a call was made, for messages about runs that make no graph.
#pragma once

#include <string>

#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// " in 'body.1'" for a call that reads parameters or buffers; for others between which of those it stands,
/// and the only module without any that is registered there: " after 'body.0' and before 'head', perhaps in
/// 'body.1' (LoopImpl)". Empty where nothing can be told.
std::string place_of_call(const Subject& subject, const Trace& trace, size_t call);

}  // namespace ulp::graph
