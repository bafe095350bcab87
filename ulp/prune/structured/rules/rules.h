// One rule an op: how the dimensions of its arguments and results belong together. To add an op, add a line to the
// table of its family. Internal to the room.
#pragma once

#include <span>
#include <string_view>

#include "ulp/prune/structured/visit.h"

namespace ulp::prune {

/// Relates the axes of a node and sets the layouts of its outputs; refuses what it does not know.
using RuleFunction = void (*)(Visit&);

/// The rule of an op.
struct Rule {
  std::string_view op;  ///< without overload
  RuleFunction apply;
};

std::span<const Rule> layer_rules();        ///< convolutions, linear layers, matrix products, embeddings
std::span<const Rule> norm_rules();         ///< batch, layer, group and instance norm
std::span<const Rule> elementwise_rules();  ///< one to one, with broadcasting
std::span<const Rule> reduce_rules();       ///< reductions, pooling, resizing, what mixes one dimension
std::span<const Rule> piece_rules();        ///< joins and parts
std::span<const Rule> move_rules();         ///< rearrangements, copies, rows by number, what makes tensors
std::span<const Rule> view_rules();         ///< what splits and merges dimensions
std::span<const Rule> sequence_rules();     ///< attention and recurrent layers

/// Null for an op without one.
RuleFunction find_rule(std::string_view op);

}  // namespace ulp::prune
