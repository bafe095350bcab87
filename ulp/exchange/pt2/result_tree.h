// What a program takes and returns, in the text of PyTorch's pytree.
#pragma once

#include <string>

#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// Of a function of this many tensors, none by name.
std::string inputs_tree(size_t count);

/// Of a result: a tensor, lists, tuples, and dictionaries for tuples of pairs of a name and a value. What
/// train mode alone has is left out.
std::string result_tree(const graph::Argument& result);

}  // namespace ulp::exchange::pt2
