// Literal arguments of calls as torch.export writes them.
#pragma once

#include <ATen/core/ivalue.h>

#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// Whether the type is Optional[Tensor], as in lists for aten::index.
bool is_optional_tensor(const c10::Type& type);

/// A member of the union Argument, {"as_int": 3}, by the type that the operator's schema says. Devices become
/// the CPU: archives are for it until PyTorch moves them. Refuses what the union lacks.
Json literal_json(const graph::Node& node, const c10::IValue& value, const c10::Type& type);

}  // namespace ulp::exchange::pt2
