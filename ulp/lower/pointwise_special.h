// Functions of the pointwise step for ops that are several functions; internal to the lowering of pointwise
// nodes.
#pragma once

#include "ulp/lower/pointwise_functions.h"

namespace ulp::lowering {

Operand logit(PointwiseWriter& write, const graph::Node& node);
Operand xlogy(PointwiseWriter& write, const graph::Node& node);
Operand xlog1py(PointwiseWriter& write, const graph::Node& node);
Operand sinc(PointwiseWriter& write, const graph::Node& node);
Operand nan_to_num(PointwiseWriter& write, const graph::Node& node);
Operand logaddexp(PointwiseWriter& write, const graph::Node& node);
Operand frac(PointwiseWriter& write, const graph::Node& node);
Operand exp2(PointwiseWriter& write, const graph::Node& node);
Operand deg2rad(PointwiseWriter& write, const graph::Node& node);
Operand rad2deg(PointwiseWriter& write, const graph::Node& node);

}  // namespace ulp::lowering
