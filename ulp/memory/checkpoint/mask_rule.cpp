#include "ulp/memory/checkpoint/mask_rule.h"

#include <limits>

namespace ulp::memory {

std::optional<MaskRule> mask_rule(const graph::Node& node) {
  if (node.is("aten::relu")) return MaskRule{true, 0, std::numeric_limits<double>::quiet_NaN(), 1};
  if (node.is("aten::relu6")) return MaskRule{false, 0, 6, 3};
  if (!node.is("aten::hardtanh")) return std::nullopt;
  const graph::Argument &low = node.args.at(1), &high = node.args.at(2);
  if (!low.literal.isScalar() || !high.literal.isScalar()) return std::nullopt;
  const double least = low.literal.toScalar().toDouble(), most = high.literal.toScalar().toDouble();
  if (!(least < most)) return std::nullopt;
  return MaskRule{false, least, most, least + (most - least) / 2};
}

}  // namespace ulp::memory
