#include "ulp/prune/weight_layout.h"

#include <algorithm>
#include <optional>

namespace ulp::prune {

namespace {

/// Which argument of the op is a weight with its inputs first; nothing: none.
std::optional<size_t> inputs_first_argument(const graph::Node& node) {
  for (const char* op : {"aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d",
                         "aten::matmul", "aten::mm", "aten::bmm"}) {
    if (node.is(op)) return 1;
  }
  if (node.is("aten::addmm") || node.is("aten::baddbmm")) return 2;
  return std::nullopt;
}

/// The parameter that a value is, also behind its mask.
at::Tensor parameter_of(const graph::Graph& graph, const graph::Value* value) {
  const graph::Node& producer = *value->producer;
  return graph.attribute_tensor(producer.is("ulp::apply_mask") ? producer.args[0].value : value);
}

}  // namespace

bool has_inputs_first(const graph::Graph& graph, const std::string& parameter) {
  const at::Tensor tensor = graph.find_attribute(parameter)->tensor;
  return std::ranges::any_of(graph.nodes(), [&](const auto& node) {
    if (node->kind() != graph::Node::Kind::call) return false;
    const std::optional<size_t> place = inputs_first_argument(*node);
    if (!place || *place >= node->args.size() || !node->args[*place].is_value()) return false;
    const at::Tensor read = parameter_of(graph, node->args[*place].value);
    return read.defined() && read.is_same(tensor);
  });
}

at::Tensor outputs_first(const at::Tensor& tensor, bool inputs_first) {
  return tensor.defined() && inputs_first ? tensor.transpose(0, 1).contiguous() : tensor;
}

}  // namespace ulp::prune
