// What pieces of a captured graph read of one another; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::distributed {

/// Throws ulp::Error for a graph with free dimensions beside the batch, or with another result than one
/// tensor that it computes.
void check_can_be_cut(const char* where, const graph::Graph& graph);

bool is_attribute(const graph::Value* value);
/// A view of a parameter or buffer, or of such a view: it has no memory of its own, so each piece makes it
/// anew.
bool is_view_of_attribute(const graph::Node& node);
/// Appends the node behind the views of attributes that it reads, each once.
void add_with_views(std::vector<const graph::Node*>& nodes, const graph::Node* node);

/// What the nodes read of others (an input of the graph that has the batch, too), and what of theirs others
/// read.
struct Border {
  std::vector<const graph::Value*> inputs, results;
};
Border border_of(const graph::Graph& graph, const std::vector<const graph::Node*>& nodes);

/// A parameter that is trained; undefined for all else.
at::Tensor trained_parameter(const graph::Graph& graph, const graph::Value* value);
/// Those that the nodes read, each once.
std::vector<at::Tensor> trained_parameters(const graph::Graph& graph,
                                           const std::vector<const graph::Node*>& nodes);

}  // namespace ulp::distributed
