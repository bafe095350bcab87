// Functions of Python over numbers, by which a program computes sizes.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ulp::exchange::pt2 {

/// Whether a target is such a function: "_operator.mul", "math.ceil", "torch.sym_max".
bool is_number_function(const std::string& target);

/// Whether an operator only checks, at sizes that a capture knows anyway.
bool is_check(const std::string& target);

/// Its value of whole numbers, numbers and bools, as Python computes it. Throws FileError for a function that is not known, for
/// other arguments, and for whole numbers beyond 64 bits.
c10::IValue number_function(const std::string& target, const std::vector<c10::IValue>& arguments);

}  // namespace ulp::exchange::pt2
