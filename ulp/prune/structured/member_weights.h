// The tensors that members of groups name, and which of them are weights. Internal to the room.
#pragma once

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"
#include "ulp/prune/structured/groups.h"

namespace ulp::prune {

/// The attribute of a member; throws ulp::Error `[where] ...` for groups of another graph.
inline const graph::Attribute& attribute_of(const graph::Graph& graph, const Member& member,
                                            const char* where) {
  const graph::Attribute* found = graph.find_attribute(member.tensor);
  if (!found || member.dim >= found->tensor.dim())
    fail(where, "expected a tensor '", member.tensor, "' of the groups in the graph, got none");
  return *found;
}

/// Weights whose rows make the unit: matrices and kernels, not biases.
inline bool is_filter(const graph::Attribute& attribute, const Member& member) {
  return attribute.kind == graph::Attribute::Kind::parameter && member.role == Role::row &&
         attribute.tensor.dim() > 1;
}

/// Rows and columns of matrices and kernels, and scales of norms; not biases and shifts.
inline bool is_weight(const graph::Attribute& attribute, const Member& member) {
  return attribute.kind == graph::Attribute::Kind::parameter && member.role != Role::shift &&
         (member.role != Role::row || attribute.tensor.dim() > 1);
}

}  // namespace ulp::prune
