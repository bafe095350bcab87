#include <algorithm>
#include <memory>

#include "ulp/base/error.h"
#include "ulp/prune/structured/member_weights.h"
#include "ulp/prune/structured/unit_width.h"
#include "ulp/prune/structured/width_table.h"

namespace ulp::prune {

namespace {

/// A convolution of as many groups as it has channels.
bool reads_depthwise(const graph::Graph& graph, const std::string& tensor) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != graph::Node::Kind::attribute || node->target() != tensor) continue;
    for (const graph::Node* user : graph.users(node->output())) {
      if (!user->op().starts_with("aten::conv") && user->op() != "aten::_convolution") continue;
      const graph::Argument& groups = user->arg("groups");
      if (groups.literal.isInt() && groups.literal.toInt() > 1) return true;
    }
  }
  return false;
}

WidthKernel kernel_of(const graph::Graph& graph, const Group& group) {
  int64_t largest = 0;
  WidthKernel kernel = WidthKernel::linear;
  for (const Member& member : group.members) {
    const graph::Attribute& attribute = attribute_of(graph, member, "prune.MeasuredWidths");
    const at::Tensor& weight = attribute.tensor;
    if (!is_weight(attribute, member) || member.role == Role::scale) continue;
    if (weight.dim() > 2 && weight.size(1) == 1 && reads_depthwise(graph, member.tensor))
      return WidthKernel::depthwise;
    if (weight.numel() <= largest) continue;
    largest = weight.numel();
    kernel = weight.dim() <= 2                                   ? WidthKernel::linear
             : weight.numel() == weight.size(0) * weight.size(1) ? WidthKernel::pointwise
                                                                 : WidthKernel::convolution;
  }
  return kernel;
}

}  // namespace

MeasuredWidths::MeasuredWidths(const graph::Graph& graph, const Groups& groups, WidthTable table,
                               double tolerance)
    : table_(std::make_shared<const WidthTable>(std::move(table))), tolerance_(tolerance) {
  table_->validate();
  if (!(tolerance >= 0 && tolerance < 1))
    fail("prune.MeasuredWidths", "expected a tolerance in [0, 1), got ", tolerance);
  for (const Group& group : groups.groups)
    widths_.push_back({table_->find(kernel_of(graph, group)), group.units, unit_width(group)});
}

int64_t MeasuredWidths::operator()(size_t group, int64_t kept) const {
  const Width& width = widths_.at(group);
  if (!width.curve) return kept;
  const auto seconds = [&](int64_t units) { return width.curve->seconds(units * width.channels); };
  double least = seconds(kept);
  for (int64_t units = kept; units <= width.units; ++units) least = std::min(least, seconds(units));
  for (int64_t units = width.units; units > kept; --units) {
    if (seconds(units) <= (1 + tolerance_) * least) return units;
  }
  return kept;
}

}  // namespace ulp::prune
