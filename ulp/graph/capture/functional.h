// The out-of-place form of an in-place operator.
#pragma once

#include <string>

#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// "aten::add.Tensor" for a call of "aten::add_.Tensor"; throws ulp::Error naming the op when there is none.
std::string functional_target(const TracedCall& call);

}  // namespace ulp::graph
