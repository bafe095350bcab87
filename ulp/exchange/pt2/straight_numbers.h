// Numbers that a torch.export program computes from sizes: whether they follow the sizes by a polynomial.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ulp/exchange/pt2/inputs.h"
#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// Names of the numbers that results and operators read, themselves or through functions of numbers. Others are for checks
/// alone.
std::set<std::string> needed_numbers(const ProgramGraph& graph);

/// Capture sees a program at a few sizes and takes numbers between and beyond them from a polynomial. Throws FileError that
/// names the node of a function which leaves it at other sizes: x.shape[0] % 8, min(x.shape[0], 5), x.shape[0] // 8. Each call
/// is computed by itself at sizes up to 65,537 (or the largest that is free) from what its arguments are there. Left out is what
/// two sizes bend together. `tensors` and `most_bytes` are those of Interpreter.
void check_straight_numbers(const Program& program,
                            const std::vector<std::pair<std::string, graph::Attribute>>& tensors,
                            const Inputs& inputs, int64_t most_bytes);

}  // namespace ulp::exchange::pt2
