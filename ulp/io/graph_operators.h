// Which operators the graph of a file may call: files come from strangers, and LibTorch does not check all that operators
// are given.
#pragma once

#include <string>

namespace ulp::io {

/// Throws ulp::Error naming an operator that a file may not call. It may call ulp's, and those of aten that check what
/// they are given and do nothing but compute.
void check_operator(const std::string& target);

}  // namespace ulp::io
