// The rows of decompose(): which function writes the calls of an op.
#pragma once

#include <span>
#include <string_view>

#include "ulp/graph/formula.h"

namespace ulp::graph {

/// A function gives the node's results by Formula::result, throws CannotWrite, or leaves the call to others.
struct DecomposeRow {
  std::string_view op;
  void (*write)(Formula&);
};
using DecomposeTable = std::span<const DecomposeRow>;

/// The numbers of a tensor argument that follows no input; throws CannotWrite for another.
at::Tensor stored_operand(Formula& f, const char* argument);
at::Tensor stored_operand(Formula& f, const Argument& argument);

/// sqrt(a^2 + b^2) from the larger of the two, so that nothing overflows; infinite where one of them is.
Formula::V hypotenuse(Formula& f, Formula::V a, Formula::V b);

}  // namespace ulp::graph
