// Where in a captured model a value is: how losses, adapters and taps name what they look at.
//
//   ""  or output       what the model returns; of a list or a tuple the first tensor
//   output:1            the second tensor of what it returns
//   NAME                what a module gives ("layer2"), or a node or a value of the graph's listing ("relu_5")
//   NAME:input          what the module or the node reads first
//   NAME:queries        of the attention in a module, or of an attention node: what softmax(q k^T) v is made of,
//   NAME:keys           (N, heads, T, depth)
//   NAME:values
//   NAME:scores         the scores before the softmax, scaled, the mask added; (N, heads, T, T)
//
// What a module gives is told from the graph: the value that its calls make and others read, before it is pooled, averaged or
// viewed in another form. A call without parameters belongs to the module around what it reads, or to one whose calls stand around
// it, so that a sum behind the last layer of a module may belong to the module around it. Where several values of a module are read
// by others, or it is called more than once, the name alone is refused and they are listed.
#pragma once

#include <string>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::distill {

/// The value at `place`. Attention that is written out as matmul, softmax, matmul is found, too. For `scores`
/// of a fused attention calls are added to the graph that compute them. Throws ulp::Error for a place that
/// names nothing, several values, or an attention that is not there.
ULP_API graph::Value* find_layer_output(graph::Graph& graph, const std::string& place);

}  // namespace ulp::distill
