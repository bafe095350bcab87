#include "ulp/graph/passes/canonicalize_convolution.h"

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

bool from_convolution(Graph& graph, Node& node, PassReport& report) {
  if (!node.is("aten::_convolution") && !node.is("aten::convolution")) return false;
  auto stride = integers(node.arg("stride"));
  const Argument& transposed = node.arg("transposed");
  int64_t dims = rank(node.arg("weight")) - 2;
  if (dims < 1 || dims > 3 || !stride || transposed.kind != Argument::Kind::literal) {
    report.near_misses.push_back(label(node) + " not made a plain convolution: its rank is not known");
    return false;
  }
  Argument input = node.args[0], weight = node.args[1], bias = node.args[2], groups = node.arg("groups");
  std::string suffix = std::to_string(dims) + "d";
  if (transposed.literal.toBool()) {
    graph.retarget(
        &node, "aten::conv_transpose" + suffix + (dims == 1 ? "" : ".input"),
        {input, weight, bias, node.args[3], node.args[4], node.arg("output_padding"), groups, node.args[5]});
  } else {
    graph.retarget(&node, "aten::conv" + suffix,
                   {input, weight, bias, node.args[3], node.args[4], node.args[5], groups});
  }
  return true;
}

}  // namespace ulp::graph
