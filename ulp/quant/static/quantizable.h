// What the static path knows about single ops: which have integers, which keep parameters, and what stands in
// the way. Internal.
#pragma once

#include <string>

#include "ulp/graph/graph.h"

namespace ulp::quant {

/// A layer's op: one with a weight.
bool has_weight(const graph::Node& node);
/// aten::lstm or aten::gru.
bool is_recurrent(const graph::Node& node);
/// Ops whose results have bounds that do not depend on the data; quantized where a recipe asks for it.
bool ends_fixed(const graph::Node& node);
/// Average and global poolings.
bool takes_average(const graph::Node& node);
/// Poolings and reshapes: the result takes its input's parameters, but for averages where the target lets them
/// have their own (backend.h).
bool keeps_parameters(const graph::Node& node);
/// Products of two values and activations of one, which engines compute from codes to codes.
bool is_code_pointwise(const graph::Node& node);
/// These keep the parameters too, but are worth it only between quantized ops.
bool moves_channels(const graph::Node& node);
/// Rows again from [N, S, heads, depth], swapped from attention's result: an engine does all of that in
/// attention's step, so codes can start behind it only.
bool joins_heads(const graph::Node& node);

/// True for an op that only splits, joins or turns dimensions, or takes a part of one: its result has its input's codes.
bool is_view(const graph::Node& node);

// Empty when the op can run on integers, else the reason why not.
std::string layer_obstacle(const graph::Graph& graph, const graph::Node& layer);
std::string add_obstacle(const graph::Node& add);
std::string attention_obstacle(const graph::Node& attention);
std::string cat_obstacle(const graph::Node& cat);

}  // namespace ulp::quant
